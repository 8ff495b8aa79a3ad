"""What a fault-tolerant state is: its specification, its transaction, and the registry of kinds."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from afspark.errors import AfsparkError, UsageError
from afspark.model.divergence import Divergence
from afspark.model.effect_digest import EffectDigest
from afspark.model.states.columns import Columns


class StateLimit(AfsparkError):
    """A state cannot hold what an update brought: too many entries or key bytes, or a sum outside int64.

    The update may be half applied: roll the transaction back. Fields: ``state``, ``limit``.
    """


class StateFull(StateLimit):
    """A table has no room for another key, whichever it is."""


@dataclass(frozen=True, kw_only=True)
class StateSpec(ABC):
    """Describes a state of an operator; immutable, picklable, comparable.

    ``divergence`` is the distance that thresholds are about. ``exact=True`` makes every changed cell part of
    the next backup whatever the threshold, unless the policy keeps no backups at all (an infinite threshold).
    """

    kind: ClassVar[str]
    #: whether shares and panes can be added up
    mergeable: ClassVar[bool] = True
    divergences: ClassVar[tuple[Divergence, ...]] = (Divergence.MAX, Divergence.MANHATTAN, Divergence.EUCLIDEAN)
    """What this kind accepts as ``divergence``."""

    divergence: Divergence | str = Divergence.MAX
    exact: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "divergence", Divergence.parse(self.divergence, self.divergences))
        if not isinstance(self.exact, bool):
            raise UsageError(f"exact is True or False, got {self.exact!r}.", got=self.exact)

    @property
    def distance(self) -> Divergence:
        """The parsed divergence."""
        given = self.divergence
        return given if isinstance(given, Divergence) else Divergence.parse(given)

    @property
    def disjoint(self) -> bool:
        """Whether no cell is in the shares of two workers where items are partitioned by key; see `HashTable`."""
        return False

    @abstractmethod
    def open(self, columns: Columns, name: str) -> State:
        """The state of that name in ``columns``: as it was left, or fresh (all zero)."""

    @property
    @abstractmethod
    def pairs_schema(self) -> pa.Schema:
        """Schema of backups: what ``issue`` and ``dump`` return and ``restore`` takes."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object that names the kind and all fields; equal specifications give equal objects."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"kind": self.kind, **fields, "divergence": self.distance.value}

    @staticmethod
    def from_json(document: dict[str, Any]) -> StateSpec:
        """The specification that ``to_json`` described; ``UsageError`` for unknown kinds and fields."""
        fields = dict(document)
        return spec_class(fields.pop("kind", None))._from_fields(fields)

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> StateSpec:
        """The specification with these fields of its JSON object."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise UsageError(
                f"State kind {cls.kind!r} has no field {unknown[0]!r}.",
                remedy=f"Its fields are {', '.join(sorted(known))}.",
                got=unknown,
                allowed=sorted(known),
            )
        return cls(**fields)


class State(ABC):
    """One worker's share of a state, updated in transactions of one batch each.

    Order of calls for batch t: ``acknowledge`` (if the driver has committed batch t-1), ``begin``, updates,
    ``update_drift``, ``issue``. A process may be killed at any store; a new one opens the state again, and
    ``rollback`` gives exactly the state before ``begin``. The journal stays valid after ``issue``, until
    ``acknowledge`` or the next ``begin`` closes the transaction; from then on ``rollback`` does nothing.

    A caller that keeps a mark "a batch is being applied" sets it after ``begin`` has returned: before that
    there is nothing to undo, and ``rollback`` might undo the transaction before.
    """

    spec: StateSpec

    @abstractmethod
    def begin(self) -> None:
        """Starts a transaction; drops the journal and the pending cells of the previous one."""

    @abstractmethod
    def rollback(self) -> None:
        """Undoes everything since the last ``begin``, pending cells included. Can be repeated, also when
        interrupted.
        """

    @abstractmethod
    def update_drift(self) -> None:
        """Ends the updates: folds the journal into the running divergence. Can be repeated after further
        updates.
        """

    @abstractmethod
    def issue(self, theta: float, *, everything: bool = False) -> pa.RecordBatch | None:
        """The cells to back up now, marked pending; None if the divergence is within ``theta`` (>= 0, may be
        infinite).

        With the pairs durable, the divergence is at most ``theta``. The set is as small as the touched cells
        allow to bring it under the low-water mark theta/2; theta 0 gives every cell that differs from its
        shadow. Infinity never issues. ``everything=True`` examines all cells, which is done anyway where the
        touched ones do not suffice. No updates are allowed after pairs were issued, until the next ``begin``.
        """

    @abstractmethod
    def dump(self) -> pa.RecordBatch:
        """Full image: every cell whose durable value will be non-zero once the pending cells are
        acknowledged.
        """

    @abstractmethod
    def acknowledge(self) -> None:
        """The issued pairs are durable, their batch committed: moves the shadows of the pending cells."""

    @abstractmethod
    def restore(self, images: Iterable[pa.RecordBatch]) -> None:
        """Loads backups, oldest first, onto a fresh state; afterwards value = shadow and the divergence is 0.

        ``UsageError`` if the state is not fresh or a batch has another schema. If interrupted, start
        again from empty columns.
        """

    @abstractmethod
    def divergence(self) -> float:
        """Exact distance between values and shadows, by a scan of all cells."""

    @abstractmethod
    def drift(self) -> float:
        """The divergence as of the last ``update_drift`` or ``acknowledge``, from the incremental books, at no
        cost.

        Equal to ``divergence()`` up to rounding for sums; for the maximum an upper bound.
        """

    def drift_left(self) -> float:
        """The drift once what was issued is acknowledged: how far the state is from the backup that is being made."""
        return self.drift()

    @abstractmethod
    def changed(self) -> pa.RecordBatch:
        """Cells touched in the last transaction, in order of first touch, with their present values."""

    def digest(self) -> EffectDigest:
        """What the last transaction has changed; costs no more than its cells.

        Equal for two copies of a state that change in the same way. Kinds that cannot tell say nothing.
        """
        return EffectDigest()

    @abstractmethod
    def export(self) -> pa.RecordBatch:
        """All non-zero cells with their present values."""

    def arrangement(self) -> pa.RecordBatch:
        """All that later exports depend on, their order included: two states of equal arrangement go on alike."""
        return self.export()

    @abstractmethod
    def merge_from(self, cells: pa.RecordBatch) -> None:
        """Takes what another share exported into the open transaction: numbers are added, sets united."""

    @abstractmethod
    def overwrite(self, pairs: pa.RecordBatch) -> None:
        """Takes the pairs of a backup into the open transaction: their cells get these values, all others stay."""

    def refuse_foreign_keys(self, worker: int, workers: int) -> None:  # noqa: B027 - most kinds have no keys
        """``UsageError`` if a key that this transaction has brought belongs to another worker."""

    @property
    def wants_rebuild(self) -> bool:
        """Whether ``rebuild`` is worth its time; costs nothing to ask."""
        return False

    def rebuild(self) -> None:  # noqa: B027 - most kinds have nothing to gain
        """Gives back what removed cells still occupy; between two transactions, that is after ``acknowledge``.

        ``changed`` is empty afterwards. A process may be killed at any store, as anywhere else.
        """

    @abstractmethod
    def discard(self) -> None:
        """Drops all columns of the state, in any phase; opening it again gives a fresh one. It cannot be rolled
        back.
        """

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of cells, removed ones included until they are rebuilt away."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes held in columns, unused capacity included."""


_KINDS: dict[str, type[StateSpec]] = {}

_Spec = TypeVar("_Spec", bound=type[StateSpec])


def register_state(cls: _Spec) -> _Spec:
    """Class decorator that makes a specification known under its ``kind``. Registering the same class again
    is harmless.
    """
    found = _KINDS.setdefault(cls.kind, cls)
    if (found.__module__, found.__qualname__) != (cls.__module__, cls.__qualname__):
        raise UsageError(
            f"State kind {cls.kind!r} is already taken by {found.__qualname__}.",
            kind=cls.kind,
            taken_by=found.__qualname__,
        )
    _KINDS[cls.kind] = cls
    return cls


def state_kinds() -> list[str]:
    """The registered kinds, sorted."""
    return sorted(_KINDS)


def spec_class(kind: str | None) -> type[StateSpec]:
    """The specification class of a kind; ``UsageError`` lists the known ones."""
    if kind not in _KINDS:
        raise UsageError(
            f"Unknown state kind {kind!r}.",
            remedy=f"Use one of {', '.join(state_kinds())}, or register your own with register_state.",
            got=kind,
            allowed=state_kinds(),
        )
    return _KINDS[kind]


def one_of(what: str, got: object, allowed: Iterable[str]) -> None:
    """``UsageError`` unless ``got`` is one of the allowed names."""
    names = list(allowed)
    if got not in names:
        raise UsageError(f"Unknown {what} {got!r}.", remedy=f"Use one of {', '.join(names)}.", got=got, allowed=names)
