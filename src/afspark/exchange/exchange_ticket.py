"""Where the rounds of a batch are: what a worker needs to take part in them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RoundKey:
    """Which rounds are meant: those of a batch, in the driver's so many-th attempt at it."""

    batch: int
    attempt: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ExchangeTicket:
    """``addresses``: a model server for each shard; ``bounds``: the first cell of each, and the number of cells."""

    addresses: tuple[str, ...]
    bounds: tuple[int, ...]
    key: RoundKey
    secret: str
    #: how the model is called that the batch leaves behind
    becomes: str = ""
    #: whether the same items lead to the same model again
    in_rounds: bool = True
    #: how long a server waits for others before it answers
    seconds: float = 60.0

    def size(self, shard: int) -> int:
        return self.bounds[shard + 1] - self.bounds[shard]
