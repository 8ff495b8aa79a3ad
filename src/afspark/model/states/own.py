"""A state of the user's own, written from scratch: three interfaces, all with empty defaults."""

from __future__ import annotations

import importlib
import json
import math
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.divergence import Divergence
from afspark.model.kernels.plain_arrays import Array
from afspark.model.states.columns import Columns
from afspark.model.states.resident import ResidentState
from afspark.model.states.scalars import Slot, TransactionPhase
from afspark.model.states.state import StateSpec, register_state

_SCHEMA = pa.schema([("image", pa.binary())])
_HEADER = 8
"""Bytes in front of a kept image that tell its length."""


class OwnState:
    """What a user derives a state of their own from.

    An object is made with the arguments given to ``Own``, then ``recover`` is called. All that lasts must be in
    what ``backup`` gives: other processes go on from it.
    """

    def divergence(self, backup: pa.RecordBatch | None) -> float:
        """How far the state is from a backup (None: from a fresh state); 0 if it is what ``backup`` gives now."""
        return 0.0

    def backup(self) -> pa.RecordBatch | None:
        """The whole state as a batch of any schema; None for a state that has nothing to keep."""
        return None

    def recover(self, backup: pa.RecordBatch | None) -> None:
        """Makes a new object equal to the one that gave this backup; None: there is none, it starts fresh."""


@register_state
@dataclass(frozen=True, init=False)
class Own(StateSpec):
    """A state of a class of the user's own: ``Own(MyState, 7)`` keeps a ``MyState(7)``.

    The image is taken, compared and kept whole in every batch, which costs time and memory in proportion to the
    state: for small states. Large ones are made of the primitives. Class and arguments must be found by other
    processes: a class of an importable module, and arguments that JSON can express.

    ``divergence`` says how the distances of several workers combine: "manhattan", they add up (the default, and
    safe), or "max", the largest counts.
    """

    kind: ClassVar[str] = "own"
    mergeable: ClassVar[bool] = False
    divergences: ClassVar[tuple[Divergence, ...]] = (Divergence.MANHATTAN, Divergence.MAX)
    cls: type[OwnState]
    args: tuple[Any, ...]

    def __init__(
        self, cls: type[OwnState], *args: Any, divergence: Divergence | str = Divergence.MANHATTAN, exact: bool = False
    ) -> None:
        for field, given in (("cls", cls), ("args", args), ("divergence", divergence), ("exact", exact)):
            object.__setattr__(self, field, given)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.cls
        if not (isinstance(given, type) and issubclass(given, OwnState)):
            raise UsageError(f"Own takes a subclass of OwnState, got {given!r}.", got=repr(given))
        try:
            # A class of the script itself is sent by value; by name no other process would find it.
            if self.cls.__module__ != "__main__":
                pickle.dumps(self.cls)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise UsageError(
                f"Class {self.cls.__qualname__} cannot be sent to workers: {problem}.",
                remedy="Define it at the top level of a module.",
                got=self.cls.__qualname__,
            ) from problem
        if not _is_json(self.args):
            raise UsageError(
                f"The arguments {self.args!r} of {self.cls.__qualname__} are not plain values.",
                remedy="Use numbers, texts, truth values, and lists of them.",
                got=repr(self.args),
            )

    def open(self, columns: Columns, name: str) -> OwnResidence:
        return OwnResidence(self, columns, name)

    @property
    def pairs_schema(self) -> pa.Schema:
        return _SCHEMA

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "class": f"{self.cls.__module__}:{self.cls.__qualname__}",
            "args": list(self.args),
            "divergence": self.distance.value,
            "exact": self.exact,
        }

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Own:
        module, _, qualname = fields["class"].partition(":")
        found: Any = importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
        return cls(found, *fields["args"], divergence=fields["divergence"], exact=fields["exact"])

    def apart(self, left: bytes, right: bytes) -> float:
        """The distance of two images, by the class's own measure."""
        return float(self.make(_decoded(left)).divergence(_decoded(right)))

    def make(self, backup: pa.RecordBatch | None) -> OwnState:
        """A new object, as that backup has it."""
        made = self.cls(*self.args)
        made.recover(backup)
        return made


def _is_json(args: tuple[Any, ...]) -> bool:
    try:
        return bool(json.loads(json.dumps(args)) == list(args))
    except (TypeError, ValueError):
        return False


class OwnResidence(ResidentState):
    """Keeps the images of a user's object, and lets it take part in transactions.

    Three images are needed at a time: of now, of the begin of the transaction, and of the last durable backup. A
    new one is written to a fourth place, and one store makes it the present one. Place 0 stands for "no image".
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("image.1", "image.2", "image.3", "image.4")
    spec: Own

    def __init__(self, spec: Own, columns: Columns, name: str) -> None:
        super().__init__(spec, columns, name)
        self._images: list[Array] = [
            columns.open(f"{name}.{column}", np.dtype(np.uint8), _HEADER) for column in self.COLUMNS
        ]
        self._resume_acknowledging()
        self._object = self._made()
        self._folded = True
        """Whether the present image is that of the object."""

    @property
    def own(self) -> OwnState:
        """The user's object, to read and to update; only in an open transaction. Ask again in each."""
        self._require_open()
        self._folded = False
        return self._object

    @property
    def view(self) -> OwnState:
        """The user's object, only to read, at any time."""
        return self._object

    # Images

    def _made(self) -> OwnState:
        return self.spec.make(_decoded(self._read(self._scalars[Slot.CURRENT])))

    def _read(self, place: int) -> bytes:
        if place == 0:
            return b""
        column = self._images[place - 1]
        length = int(column[:_HEADER].view(np.int64)[0])
        return column[_HEADER : _HEADER + length].tobytes()

    def _write(self, place: int, image: bytes) -> None:
        column = self._images[place - 1]
        if len(column) < _HEADER + len(image):
            column = self._columns.grow(f"{self.name}.{self.COLUMNS[place - 1]}", _HEADER + len(image))
            self._images[place - 1] = column
        column[_HEADER : _HEADER + len(image)] = np.frombuffer(image, np.uint8)
        column[:_HEADER].view(np.int64)[0] = len(image)

    def _pairs(self, image: bytes) -> pa.RecordBatch:
        return pa.record_batch([pa.array([image], pa.binary())], schema=_SCHEMA)

    def _pairs_of(self, place: int) -> pa.RecordBatch:
        return self._pairs(self._read(place)).slice(0, 1 if place else 0)

    # Transactions

    def begin(self) -> None:
        scalars = self._scalars
        self._require_kept()
        self._resume_acknowledging()
        self.update_drift()
        scalars[Slot.PHASE] = TransactionPhase.CLOSED
        scalars[Slot.BEFORE] = scalars[Slot.CURRENT]
        scalars.set_real(Slot.POWER_BEFORE, scalars.real(Slot.POWER))
        scalars[Slot.PENDING] = 0
        scalars[Slot.ATTEMPT] += 1
        scalars[Slot.PHASE] = TransactionPhase.OPEN

    def rollback(self) -> None:
        self._resume_acknowledging()
        if not self._in_transaction:
            return
        scalars = self._scalars
        scalars[Slot.CURRENT] = scalars[Slot.BEFORE]
        scalars.set_real(Slot.POWER, scalars.real(Slot.POWER_BEFORE))
        scalars[Slot.PENDING] = 0
        self._object = self._made()
        self._folded = True
        scalars[Slot.PHASE] = TransactionPhase.CLOSED

    def update_drift(self) -> None:
        if self._folded or self._scalars[Slot.PHASE] != TransactionPhase.OPEN:
            return
        scalars = self._scalars
        image = _encoded(self._object.backup())
        before = scalars[Slot.BEFORE]
        place = before if image == self._read(before) else 0
        if image and not place:
            needed = (before, scalars[Slot.DURABLE], scalars[Slot.CURRENT])
            place = next(free for free in (1, 2, 3, 4) if free not in needed)
            self._write(place, image)
        scalars[Slot.CURRENT] = place
        scalars.set_real(Slot.POWER, self.divergence())
        self._folded = True

    # Backups

    def issue(self, theta: float, *, everything: bool = False) -> pa.RecordBatch | None:
        self._require_issuable(theta)
        self.update_drift()
        if theta == math.inf:
            return None
        scalars = self._scalars
        current = self._read(scalars[Slot.CURRENT])
        if self.spec.exact or theta == 0:
            needed = current != self._read(scalars[Slot.DURABLE])
        else:
            # Not a number means not within.
            needed = not scalars.real(Slot.POWER) <= theta
        if not needed:
            return None
        scalars[Slot.PENDING] = 1
        scalars[Slot.PHASE] = TransactionPhase.ISSUED
        return self._pairs(current)

    def acknowledge(self) -> None:
        if self._scalars[Slot.PHASE] in (TransactionPhase.ISSUED, TransactionPhase.ACKNOWLEDGING):
            self._scalars[Slot.PHASE] = TransactionPhase.ACKNOWLEDGING
            self._finish_acknowledging()
        if self._scalars[Slot.PHASE] == TransactionPhase.OPEN:
            self.update_drift()
            self._scalars[Slot.PHASE] = TransactionPhase.CLOSED

    def _finish_acknowledging(self) -> None:
        scalars = self._scalars
        scalars[Slot.DURABLE] = scalars[Slot.CURRENT]
        scalars.set_real(Slot.POWER, 0.0)
        scalars[Slot.PHASE] = TransactionPhase.CLOSED

    def dump(self) -> pa.RecordBatch:
        return self._pairs_of(self._scalars[Slot.CURRENT if self._scalars[Slot.PENDING] else Slot.DURABLE])

    def restore(self, images: Iterable[pa.RecordBatch]) -> None:
        scalars = self._scalars
        if scalars[Slot.ATTEMPT] or scalars[Slot.CURRENT]:
            raise UsageError(
                f"State {self.name!r} is not fresh.", remedy="Restore before the first transaction.", state=self.name
            )
        newest = b""
        for image in images:
            self._require_schema(image)
            if image.num_rows:
                newest = image.column("image")[-1].as_py()
        if newest:
            self._write(1, newest)
            scalars[Slot.DURABLE] = scalars[Slot.BEFORE] = 1
            scalars[Slot.CURRENT] = 1
        self._object = self._made()

    def merge_from(self, cells: pa.RecordBatch) -> None:
        raise UsageError(
            f"State {self.name!r} is of a kind of its own, which cannot be merged.",
            remedy="Merge the images in the operator.",
            state=self.name,
        )

    def overwrite(self, pairs: pa.RecordBatch) -> None:
        self._require_open()
        self._require_schema(pairs)
        if pairs.num_rows:
            self._object = self.spec.make(_decoded(pairs.column("image")[-1].as_py()))
            self._folded = False

    # Reading

    def divergence(self) -> float:
        return float(self._object.divergence(_decoded(self._read(self._scalars[Slot.DURABLE]))))

    def drift(self) -> float:
        return self._scalars.real(Slot.POWER)

    def drift_left(self) -> float:
        return 0.0 if self._scalars[Slot.PHASE] == TransactionPhase.ISSUED else self.drift()

    def changed(self) -> pa.RecordBatch:
        current, before = self._scalars[Slot.CURRENT], self._scalars[Slot.BEFORE]
        return self._pairs_of(0 if current == before else current)

    def export(self) -> pa.RecordBatch:
        self.update_drift()
        return self._pairs_of(self._scalars[Slot.CURRENT])

    @property
    def size(self) -> int:
        return 1 if self._scalars[Slot.CURRENT] else 0

    @property
    def memory(self) -> int:
        return self._scalars.memory + sum(image.nbytes for image in self._images)


def _encoded(batch: pa.RecordBatch | None) -> bytes:
    """A batch as bytes, nothing as none."""
    if batch is None:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decoded(image: bytes) -> pa.RecordBatch | None:
    if not image:
        return None
    with pa.ipc.open_stream(image) as reader:
        return reader.read_next_batch()
