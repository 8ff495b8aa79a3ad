"""What resources cost a user: weights by which schemes of fault tolerance are ranked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from afspark.errors import UsageError
from afspark.policies import parameters

#: Sums of what resources cost stay finite below it.
LARGEST_COST = 1e100


@dataclass(frozen=True, init=False)
class Costs:
    """Weights of CPU, memory, network and hosts, numbers from 0 to 1e100.

    Each weighs what a scheme takes beyond the primary, in units of what the primary takes itself: 0 is free, and
    ``hosts=10`` says that a second host costs as much as ten times the primary's CPU.

    >>> Costs(cpu=2).to_json()
    {'cpu': 2, 'memory': 0, 'network': 1, 'hosts': 10}
    """

    cpu: float = 1
    memory: float = 0
    network: float = 1
    hosts: float = 10

    # Not the generated one, which would answer an unknown cost with a TypeError.
    def __init__(
        self, *, cpu: float = 1, memory: float = 0, network: float = 1, hosts: float = 10, **unknown: Any
    ) -> None:
        if unknown:
            raise UsageError(
                f"Unknown cost {', '.join(unknown)}.",
                remedy=f"Costs are those of {', '.join(one.name for one in fields(self))}.",
                unknown=list(unknown),
            )
        for name, value in {"cpu": cpu, "memory": memory, "network": network, "hosts": hosts}.items():
            meaning = "It is what the resource costs, relative to the others; 0: nothing."
            object.__setattr__(self, name, parameters.finite(name, value, meaning, most=LARGEST_COST))

    def to_json(self) -> dict[str, float]:
        """What records and reports say of it."""
        return asdict(self)
