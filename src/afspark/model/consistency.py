"""How far workers that train one model may be ahead of each other: bulk, stale and asynchronous parallel.

A worker's share of a batch is divided into *steps*. It begins step k, counted from 0, with a model in which everybody's
steps below ``k - staleness`` are merged, and waits until there is one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from afspark.errors import UsageError


@dataclass(frozen=True)
class Consistency:
    """One of `BSP`, `SSP` and `ASP`."""

    #: whether results are merged when those of a whole round are there, in the order of workers; else as they arrive
    in_rounds: ClassVar[bool] = False

    @property
    def staleness(self) -> float:
        """How many steps of others a worker's model may lack, besides the one under way."""
        raise NotImplementedError

    def may_begin(self, step: int, merged: float) -> bool:
        """Whether a step may begin when everybody who is still at work has had so many steps merged.

        >>> BSP().may_begin(3, merged=2), SSP(1).may_begin(3, merged=2), ASP().may_begin(3, merged=0)
        (False, True, True)
        """
        return merged >= step - self.staleness


@dataclass(frozen=True)
class BSP(Consistency):
    """Bulk synchronous: every step begins with the model that has everybody's step before.

    After a failure, under an exact tolerance, the model is bit for bit that of a run without failures.
    """

    in_rounds: ClassVar[bool] = True

    @property
    def staleness(self) -> float:
        return 0

    def __str__(self) -> str:
        return "bsp"


@dataclass(frozen=True)
class SSP(Consistency):
    """Stale synchronous: at most ``steps`` further steps on a model that lacks results of others.

    After a failure no result is merged twice; which model a step began with depends on timing, as it does without one.
    """

    steps: int

    def __post_init__(self) -> None:
        steps: object = self.steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise UsageError(
                f"SSP takes a number of steps from 0 on, not {self.steps!r}.",
                remedy="Use BSP() for none, and ASP() for any number.",
                steps=self.steps,
            )

    @property
    def staleness(self) -> float:
        return self.steps

    def __str__(self) -> str:
        return f"ssp:{self.steps}"


@dataclass(frozen=True)
class ASP(Consistency):
    """Asynchronous: nobody ever waits. After a failure as with `SSP`."""

    @property
    def staleness(self) -> float:
        return math.inf

    def __str__(self) -> str:
        return "asp"


def consistency_of(text: str) -> Consistency:
    """What ``bsp``, ``ssp:5`` or ``asp`` says.

    >>> consistency_of("ssp:5")
    SSP(steps=5)
    """
    found = re.fullmatch(r"ssp:(\d+)", text)
    if found:
        return SSP(int(found[1]))
    plain = {"bsp": BSP(), "asp": ASP()}
    if text not in plain:
        raise UsageError(f"There is no consistency {text!r}.", remedy="Use bsp, ssp:STEPS or asp.", consistency=text)
    return plain[text]
