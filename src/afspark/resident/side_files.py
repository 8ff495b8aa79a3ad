"""Files beside a state that are about its other replica: checkpoints on their way to it, items that wait for it.

A primary keeps its checkpoints until its secondary has them; a secondary that sleeps keeps the items of batches that
its state does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from afspark.numbers import Batch

_SHIP = "ship-"
_QUEUE = "queue-"

MOST_DELTAS = 16
"""How many checkpoints wait for a secondary at most: one that is further behind is built anew."""

MOST_QUEUED_BYTES = 2**28
"""How much waits for a sleeping secondary at most: then it receives nothing until a checkpoint comes."""


@dataclass(frozen=True)
class SideFiles:
    """What can be done with the files of a state, under its lock."""

    names: Callable[[], Iterable[str]]
    size: Callable[[str], int]
    read: Callable[[str], bytes | None]
    write: Callable[[str, bytes], None]
    remove: Callable[[str], None]


@dataclass(frozen=True, order=True)
class Delta:
    """A checkpoint: what a state has changed since the end of batch ``since``, up to the end of batch ``until``.

    It can be given to any state from ``since`` on, because it has the values at its end.

    >>> Delta.parse(Delta(9, -1).file)
    Delta(until=9, since=-1)
    """

    until: int
    since: int

    @property
    def file(self) -> str:
        return f"{_SHIP}{self.until}-{self.since}"

    @classmethod
    def parse(cls, file: str) -> Delta | None:
        """The checkpoint in a file; None if the file is something else."""
        if not file.startswith(_SHIP) or file.endswith(".tmp"):
            return None
        until, since = file.removeprefix(_SHIP).split("-", 1)
        return cls(int(until), int(since))

    def fits(self, version: int) -> bool:
        """Whether a state of that version can take it."""
        return self.since <= version < self.until


def deltas_in(files: SideFiles) -> list[Delta]:
    """The checkpoints that wait, the oldest first."""
    return sorted(found for file in files.names() if (found := Delta.parse(file)))


def drop_deltas(files: SideFiles, reached: int, batch: Batch) -> None:
    """Removes checkpoints that a secondary at version ``reached`` has, those of attempts to apply ``batch``, and the
    oldest if there are too many.
    """
    found = deltas_in(files)
    kept = [one for one in found if reached < one.until < batch][-MOST_DELTAS:]
    for one in found:
        if one not in kept:
            files.remove(one.file)


def leading_from(deltas: Sequence[Delta], version: int) -> list[Delta]:
    """Those that bring a state of that version as far as possible, in order.

    >>> leading_from([Delta(3, 1), Delta(6, 3), Delta(9, 7)], 2)
    [Delta(until=3, since=1), Delta(until=6, since=3)]
    """
    chosen: list[Delta] = []
    while following := [one for one in deltas if one.fits(version)]:
        chosen.append(min(following))
        version = chosen[-1].until
    return chosen


def queue_name(batch: Batch) -> str:
    """The file with the items of a batch that wait for a sleeping secondary."""
    return f"{_QUEUE}{batch}"


def queued_in(files: SideFiles) -> list[Batch]:
    """The batches whose items wait."""
    names = [name for name in files.names() if name.startswith(_QUEUE) and not name.endswith(".tmp")]
    return sorted(Batch(int(name.removeprefix(_QUEUE))) for name in names)


def drop_queued(files: SideFiles, version: int) -> None:
    """Removes the items of batches that the state has by now."""
    for batch in queued_in(files):
        if batch <= version:
            files.remove(queue_name(batch))
