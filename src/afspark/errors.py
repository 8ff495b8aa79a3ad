"""The error tree.

Every error carries its facts as fields, a one-line message and, where the user can do something about it,
a remedy. All of them survive pickling, because most are raised in one process and read in another.
"""

from __future__ import annotations

import json
from typing import Any


class AfsparkError(Exception):
    """Base of all errors raised on purpose.

    Keyword arguments become fields of the error; ``remedy`` says what the user can do.
    """

    def __init__(self, message: str, *, remedy: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.fields)

    def to_json(self) -> dict[str, Any]:
        """For places where nothing is pickled; fields that are not JSON become their text."""
        fields = {name: json.loads(json.dumps(value, default=str)) for name, value in self.fields.items()}
        return {"kind": type(self).__name__, "message": self.message, "remedy": self.remedy, "fields": fields}


def first_line(error: BaseException) -> str:
    """What an error says first, for a sentence of ours; the name of its class if it says nothing.

    >>> first_line(OSError("Address in use.\\nDetail: errno 98")), first_line(ValueError())
    ('Address in use', 'ValueError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def from_json(document: dict[str, Any]) -> AfsparkError:
    """Inverse of :meth:`AfsparkError.to_json`; an unknown kind becomes the base class."""
    kinds = {kind.__name__: kind for kind in _descendants(AfsparkError)}
    kind = kinds.get(document["kind"], AfsparkError)
    return kind(document["message"], remedy=document["remedy"], **document["fields"])


def _descendants(kind: type[AfsparkError]) -> list[type[AfsparkError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _descendants(child))]


def _rebuild(kind: type[AfsparkError], message: str, remedy: str, fields: dict[str, Any]) -> AfsparkError:
    return kind(message, remedy=remedy, **fields)


class UsageError(AfsparkError):
    """The user asked for something that cannot work; nothing was started or changed."""


class OperatorMisuse(UsageError):
    """An operator contradicts the pipeline it stands in, whatever items it gets."""


class InputError(AfsparkError):
    """An input file or stream cannot be read. Fields: ``path``."""


class CheckpointError(AfsparkError):
    """The checkpoint belongs to another pipeline, another format version, or contradicts the query."""


class AnotherDriver(CheckpointError):
    """Another driver runs on the checkpoint, or has taken it over. Fields: ``host``, ``process``, ``since``."""


class StoreError(AfsparkError):
    """Base of what goes wrong in the backup store."""


class StoreNotWritable(StoreError):
    """The backup store refuses writes. Fields: ``path``."""


class StoreFull(StoreNotWritable):
    """There is no room for another object. Fields: ``path``, ``free`` bytes where known."""


class StoreAway(StoreError):
    """The place of the backup store is gone with all that is in it, or hangs. Fields: ``path``, ``seconds``."""


class StoreUnreachable(StoreError):
    """Nobody has answered for the backup store, or only that it cannot do so now. Fields: ``path``, ``reason``."""


class ObjectMissing(StoreError):
    """No object of that name. Fields: ``name``."""


class CorruptObject(StoreError):
    """An object is truncated or its checksum does not match. Fields: ``name``."""


class ForeignObject(StoreError):
    """An object is sound but of another format version or owner. Fields: ``name``, ``found``, ``expected``."""


class BackupLost(StoreError):
    """A worker was restored without something that had to be durable: no bound holds any more.

    Fields: ``confirmed``, ``restored``: batch, incarnation and number of the backups.
    """

    @classmethod
    def of(cls, what: str, confirmed: tuple[int, ...], restored: tuple[int, ...]) -> BackupLost:
        """The error for a state that is behind what its receiver was told."""
        return cls(
            f"The restored state is behind its receiver: {what}"
            f" (confirmed by backup {tuple(confirmed)}, restored from {tuple(restored)}).",
            remedy="Look for what was deleted from the store; results would be further from the truth than promised.",
            confirmed=tuple(confirmed),
            restored=tuple(restored),
        )


class SegmentError(AfsparkError):
    """Base of what goes wrong with a worker's resident state."""


class NoSpace(SegmentError):
    """The host cannot hold the resident state. Fields: ``path``, ``wanted``."""


class SegmentBusy(SegmentError):
    """Another process still applies a batch to the segment. Fields: ``path``."""


class WorkerFailed(AfsparkError):
    """A worker could not apply a batch although it was tried again. Fields: ``batch``."""


class OperatorFailed(AfsparkError):
    """User code raised. Nothing of the batch was applied there. Fields: ``batch``, ``worker``, ``trace``."""


class BadItems(AfsparkError):
    """More items were bad than the user bears. Fields: ``limit``, and ``batch`` and ``worker``."""
