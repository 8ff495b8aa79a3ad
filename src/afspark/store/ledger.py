"""The loss ledger: every failure that cost state, durable before anything is done about it."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from afspark.bounds import Thresholds
from afspark.errors import UsageError
from afspark.numbers import Batch, Incarnation, PaneNumber
from afspark.store.base import Store
from afspark.store.counted_failure import CountedFailure
from afspark.store.format import seal
from afspark.store.naming import LEDGER
from afspark.store.reading import Damage, read_sealed

LOG = logging.getLogger("afspark")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A worker's state was lost.

    ``batch`` is the first batch that did not find the state, ``incarnation`` the one that was lost,
    ``theta`` and ``failures`` those in force before this loss, ``at`` seconds since 1970. A loss that is not
    ``counted`` (its incarnation completed no batch) does not lower thresholds. ``sequence`` and ``token`` are
    given by the ledger; the token tells entries of two drivers apart that took the same number.
    """

    batch: Batch
    operator: str
    worker: int
    incarnation: Incarnation
    counted: bool
    cause: str
    theta: Mapping[str, float]
    failures: int
    #: what a counted loss may have taken
    counted_failure: CountedFailure | None = None
    #: waiting items that went with it
    items: int = 0
    #: batches that nobody replays, and the items that the worker had got in them
    gap_batches: int = 0
    gap_items: int = 0
    at: float = field(default_factory=time.time)
    #: what was in force for the worker, and why; None if the entry is about no state of a worker's
    thresholds: Thresholds | None = None
    sequence: int = -1
    token: str = ""

    @property
    def limited(self) -> bool:
        """Whether thresholds have limited what it can have taken."""
        failure = self.counted_failure
        return failure is None or all(map(math.isfinite, failure.theta.values()))

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "theta": dict(self.theta),
            "counted_failure": self.counted_failure.to_json() if self.counted_failure else None,
            "thresholds": self.thresholds.to_json() if self.thresholds else None,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Loss:
        failure, thresholds = found["counted_failure"], found["thresholds"]
        return cls(
            **{
                **found,
                "counted_failure": CountedFailure.from_json(failure) if failure else None,
                "thresholds": Thresholds(**thresholds) if thresholds else None,
            }
        )


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How a loss was made good: ``seconds`` it took, cells restored, and objects found damaged on the way.

    ``panes`` are the first and the last that the lost state can have held, None where nobody knows.
    """

    seconds: float
    restored_cells: int
    damaged: tuple[str, ...] = ()
    at: float = field(default_factory=time.time)
    #: from the loss to the end of the recovery
    gap_seconds: float = 0.0
    host: str = ""
    #: pushed items that were confirmed and that the restored state lacks
    items_behind: int = 0
    panes: tuple[PaneNumber | None, PaneNumber | None] = (None, None)
    #: batches that were applied once more, because no record covered them, and how long that took
    replayed: int = 0
    replay_seconds: float = 0.0
    #: a replayed batch has done something else than the first time
    differed: bool = False
    #: from the failure to the first batch applied, by steps, beside what was estimated; empty: nobody has timed it
    account: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Recovery:
        lowest, highest = found["panes"]
        return cls(**{**found, "damaged": tuple(found["damaged"]), "panes": (lowest, highest)})

    @property
    def covered(self) -> bool:
        """Whether it has given back what bounds promise: not if damaged objects had to be passed over, or if a replay
        has done something else than the first time.
        """
        return not self.damaged and not self.differed

    @property
    def all_seconds(self) -> float:
        """How long the worker took to load its backups and to apply batches again."""
        return self.seconds + self.replay_seconds

    def with_another(self, other: Recovery) -> Recovery:
        """What two completions of one loss say together: the newer one counts, but what no bound covers stays so,
        whatever the clocks of their drivers say.
        """
        newest = max(self, other, key=lambda one: one.at)
        uncovered = [one for one in (self, other) if not one.covered]
        if len(uncovered) < 2:
            return uncovered[0] if uncovered else newest
        lowest, highest = ([one.panes[end] for one in uncovered] for end in (0, 1))
        return replace(
            newest,
            damaged=tuple(dict.fromkeys((*self.damaged, *other.damaged))),
            differed=self.differed or other.differed,
            panes=(
                min((pane for pane in lowest if pane is not None), default=None) if None not in lowest else None,
                max((pane for pane in highest if pane is not None), default=None) if None not in highest else None,
            ),
        )


@dataclass(frozen=True)
class LedgerEntry:
    """A loss and, once it is complete, its recovery."""

    loss: Loss
    recovery: Recovery | None = None

    @property
    def covered(self) -> bool | None:
        """Whether a bound covers the loss; None while nobody knows what its recovery will meet."""
        if not self.loss.limited:
            return False
        return None if self.recovery is None else self.recovery.covered


class Ledger:
    """The losses of one query, over all its epochs.

    Reads the store once, on first use; after that only its own entries are added. A replaced driver that is
    still alive may add entries too: they are counted at the next start, which can only lower thresholds.

    Every object names the ones before it that no other does, and commit records name the newest (`heads`), so that
    one that is gone or damaged is missed. One that nothing names was being written when its process died: nothing
    has followed from it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[int, str], LedgerEntry] | None = None
        self._damaged: list[Damage] = []
        #: the sound objects, and those before them that they name
        self._after: dict[str, tuple[str, ...]] = {}
        self._expected: frozenset[str] = frozenset()

    def expect(self, heads: Iterable[str]) -> None:
        """What a commit record said of `heads`; warns if anything is missing."""
        self._expected = frozenset(heads)
        if self.missing:
            LOG.warning(
                "The loss ledger in %s has lost %s: what failures have cost is not known any more, and no bound holds.",
                self._store.path,
                ", ".join(self.missing),
            )

    @property
    def heads(self) -> list[str]:
        """The objects that no sound one names; none of them, and none before them, may be missing later."""
        self._entries()
        before = {name for names in self._after.values() for name in names}
        return sorted((self._after.keys() | self._expected) - before)

    @property
    def missing(self) -> list[str]:
        """Objects that were durable once and cannot be read."""
        self._entries()
        named = {name for names in self._after.values() for name in names} | self._expected
        return sorted(named - self._after.keys())

    @property
    def damaged(self) -> list[Damage]:
        """Objects that cannot be read, or are gone."""
        gone = set(self.missing) - {damage.name for damage in self._damaged}
        return [*self._damaged, *(Damage(name, "missing", "named by what came after it") for name in sorted(gone))]

    def declare(self, loss: Loss) -> Loss:
        """Makes a loss durable and returns it with its sequence number."""
        known = self._entries()
        sequence = max((number for number, _ in known), default=-1) + 1
        declared = replace(loss, sequence=sequence, token=secrets.token_hex(8))
        self._put(f"{_folder(declared)}/loss", {"kind": "loss", "loss": declared.to_json()})
        known[sequence, declared.token] = LedgerEntry(declared)
        return declared

    def complete(self, loss: Loss, recovery: Recovery) -> LedgerEntry:
        """Makes the end of a declared loss's recovery durable.

        A second completion replaces the first, unless no bound covers that one.
        """
        known = self._entries()
        if (loss.sequence, loss.token) not in known:
            raise UsageError(f"No loss {loss.sequence} {loss.token!r} was declared.", sequence=loss.sequence)
        meta = {
            "kind": "recovery",
            "sequence": loss.sequence,
            "token": loss.token,
            "recovery": vars(recovery),
        }
        self._put(f"{_folder(loss)}/recovery-{secrets.token_hex(8)}", meta)
        before = known[loss.sequence, loss.token].recovery
        entry = LedgerEntry(loss, before.with_another(recovery) if before else recovery)
        known[loss.sequence, loss.token] = entry
        return entry

    def entries(self) -> list[LedgerEntry]:
        """All losses in order of their numbers."""
        return [entry for _, entry in sorted(self._entries().items(), key=lambda item: item[0])]

    def failures(self, operator: str, worker: int) -> int:
        """How many counted losses a worker has had: the k of its thresholds."""
        return sum(
            entry.loss.counted and entry.loss.operator == operator and entry.loss.worker == worker
            for entry in self._entries().values()
        )

    def _put(self, name: str, meta: dict[str, Any]) -> None:
        before = self.heads
        self._store.put(name, seal({**meta, "after": before}, {}))
        self._after[name] = tuple(before)

    def _entries(self) -> dict[tuple[int, str], LedgerEntry]:
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> dict[tuple[int, str], LedgerEntry]:
        names = self._store.list(LEDGER)
        losses: dict[tuple[int, str], Loss] = {}
        recoveries: dict[tuple[int, str], Recovery] = {}
        self._damaged, self._after = [], {}
        for name, found in zip(names, read_sealed(self._store, names), strict=True):
            if isinstance(found, Damage):
                self._damaged.append(found)
                continue
            try:
                if found.meta["kind"] == "loss":
                    loss = Loss.from_json(found.meta["loss"])
                    losses[loss.sequence, loss.token] = loss
                else:
                    key = (int(found.meta["sequence"]), str(found.meta["token"]))
                    recovery = Recovery.from_json(found.meta["recovery"])
                    recoveries[key] = recoveries[key].with_another(recovery) if key in recoveries else recovery
                self._after[name] = tuple(found.meta["after"])
            except (KeyError, TypeError, ValueError) as error:
                self._damaged.append(Damage(name, "foreign", f"not understood: {error!r}"))
        return {key: LedgerEntry(loss, recoveries.get(key)) for key, loss in losses.items()}


def _folder(loss: Loss) -> str:
    return f"{LEDGER}/{loss.sequence:08d}-{loss.token}"
