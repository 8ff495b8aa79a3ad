"""The controller over time: when it looks at its units again, and what it remembers of them in between. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from afspark.control.controller import decide
from afspark.control.decisions import Decision, InForce
from afspark.control.situation import Situation, Unit
from afspark.policies import Adaptive


@dataclass(frozen=True, kw_only=True)
class Controller:
    """The controller of the units of one operator. ``wanted`` is what it has decided for each of them so far.
    ``schemes_only``: whether nothing but the six schemes is offered.

    >>> controller = Controller(adaptive=Adaptive(every=0.5))
    >>> controller.is_due(7.0), controller.tick(7.0, ())[0].is_due(7.4)
    (True, False)
    """

    adaptive: Adaptive
    wanted: Mapping[Unit, InForce] = field(default_factory=dict)
    #: when it has looked last, in seconds since 1970
    looked: float | None = None
    schemes_only: bool = False

    def is_due(self, now: float) -> bool:
        """Whether it is time to look again; a clock that was set back does not stop the controller."""
        return self.looked is None or not 0 <= now - self.looked < self.adaptive.every

    def tick(self, now: float, situations: Iterable[Situation]) -> tuple[Controller, tuple[Decision, ...]]:
        """What is decided for every unit, if it is time to look; and the controller from then on."""
        if not self.is_due(now):
            return self, ()
        found = tuple(
            decide(self.adaptive, one, self.wanted.get(one.unit), schemes_only=self.schemes_only) for one in situations
        )
        wanted = {**self.wanted, **{one.unit: one.in_force for one in found}}
        return replace(self, wanted=wanted, looked=now), found
