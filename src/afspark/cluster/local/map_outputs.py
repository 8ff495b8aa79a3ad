"""What the tasks of one stage have sent to those of the next."""

from __future__ import annotations

from collections.abc import Callable

from afspark.protocol.parcels import Parcel
from afspark.task.stage_inputs import Addressed


class MapOutputs:
    """Parcels that are kept until they are lost. ``make`` has them sent, when somebody needs them."""

    def __init__(self, make: Callable[[], list[Addressed]]) -> None:
        self._make = make
        self._kept: list[Addressed] | None = None

    def of(self, worker: int) -> list[Parcel]:
        """The parcels for one worker."""
        if self._kept is None:
            self._kept = self._make()
        return [parcel for number, parcel in self._kept if number == worker]

    def forget(self) -> None:
        self._kept = None
