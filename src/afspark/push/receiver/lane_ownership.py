"""Who may take items off a lane: the newest incarnation of its worker, and of that the process that came last. Pure."""

from __future__ import annotations

from collections import deque

from afspark.numbers import FIRST_INCARNATION, NO_FENCE, Fence, Incarnation
from afspark.push.wire.push_errors import Superseded

#: How many processes that had to give a lane up are remembered.
_FORMER_OWNERS = 1000


class LaneOwnership:
    """The claims on one lane. ``fence`` orders the requests of drivers for one incarnation."""

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self._claim = (FIRST_INCARNATION, NO_FENCE)
        self._owner = ""
        self._former: deque[str] = deque(maxlen=_FORMER_OWNERS)

    def claim(self, incarnation: Incarnation, fence: Fence, owner: str = "", *, takes_over: bool = False) -> bool:
        """Whether the lane changes hands; `Superseded` if a newer worker, or another process of the same one, has it.

        A process that ``takes_over`` shuts out all others of its incarnation for good: whatever they confirm later
        is refused, so that what it finds in the store afterwards is all that was ever confirmed for.
        """
        if (incarnation, fence) < self._claim:
            raise Superseded(
                f"Lane {self._lane} belongs to incarnation {self._claim[0]}, fence {self._claim[1]}; "
                f"({incarnation}, {fence}) is older.",
                lane=self._lane,
            )
        changes = (incarnation, fence) > self._claim
        if changes:
            self._former.clear()
        elif owner != self._owner:
            if owner in self._former or not takes_over:
                raise Superseded(
                    f"Another process of incarnation {incarnation} has lane {self._lane}.", lane=self._lane
                )
            self._former.append(self._owner)
        self._claim, self._owner = (incarnation, fence), owner
        return changes
