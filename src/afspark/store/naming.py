"""Names of everything a query keeps in its store. Pure functions; the layout is part of the format.

========================================================  ============================================
name                                                      object
========================================================  ============================================
``identity``                                              whose checkpoint this is
``place``                                                 where the checkpoint is; a copy finds another address there
``epochs/<epoch>/driver``                                 who has the epoch; fences older ones, renewed
``epochs/<epoch>/guard``                                  deleted by whoever takes the query over
``epochs-turns/<number>``                                 whose epoch has that number, where the store can tell
``epochs/<epoch>/start``                                  the history that the epoch continues
``epochs/<epoch>/records/<batch>-<attempt>``              commit records
``objects/<epoch>/<operator>/<worker>-<incarnation>-``    backups
``<batch>-<number>-<attempt>``
``positions/<batch>/<epoch>``                             where the batch ended on lanes of pushed items, and what
                                                          it has done
``effects/<batch>/<epoch>``                               what batches up to this one have done
``ledger/<sequence>-<token>/loss``, ``.../recovery-...``  the loss ledger
``planned/<batch>/<epoch>``                               Spark's part of the checkpoint, where it cannot write here
``control/<epoch>/<number>``                              what was measured of workers, and decided about them
``savepoint``                                             the list of a savepoint's objects
``from-savepoint``                                        the savepoint that the checkpoint was begun from
``requests/<token>``, ``.../<token>-answer``              what others ask of the driver at work
========================================================  ============================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from afspark.errors import UsageError
from afspark.numbers import Batch, Incarnation
from afspark.store.claims import ClaimId

EPOCHS = "epochs"
OBJECTS = "objects"
LEDGER = "ledger"
DRIVER = "driver"
"""What an epoch says of its driver, below its folder."""
GUARD = "guard"
"""Beside it as long as nobody has opened a later epoch."""
IDENTITY = "identity"
PLACE = "place"
SAVEPOINT = "savepoint"
ORIGIN = "from-savepoint"
REQUESTS = "requests"
FOLDER = "afspark"
"""Where all of it is in a checkpoint that is Spark's as well."""

_EPOCH_ENTRY = re.compile(r"epochs/([^/]+)/(?:driver|guard|start|records/(\d{12,})-(\d{4,}))")
_OBJECT = re.compile(r"objects/([^/]+)/([^/]+)/(\d{5,})-(\d{5,})-(\d{12,})-(\d{4,})-(\d{4,})")


class EpochId(ClaimId):
    """One opening of a query by one driver."""


@dataclass(frozen=True)
class EpochEntry:
    """A parsed name below ``epochs``; ``batch`` is None for what is not a record."""

    name: str
    epoch: EpochId
    batch: Batch | None
    attempt: int

    @classmethod
    def parse(cls, name: str) -> EpochEntry | None:
        match = _EPOCH_ENTRY.fullmatch(name)
        epoch = EpochId.parse(match[1]) if match else None
        if match is None or epoch is None:
            return None
        return cls(name, epoch, None if match[2] is None else Batch(int(match[2])), int(match[3] or 0))


@dataclass(frozen=True)
class ObjectOrigin:
    """Who wrote a backup object, and which of the incarnation's in that batch it is: its ``number``.

    It is in the name, because whoever finds the object damaged must know it as well.
    """

    epoch: str
    operator: str
    worker: int
    incarnation: Incarnation
    batch: Batch
    number: int
    attempt: int


def source_folder(name: str) -> str:
    """Where a source keeps the list of what it has found."""
    return f"source-{name}" if name else "source"


def driver_name(epoch: str) -> str:
    return f"{EPOCHS}/{epoch}/{DRIVER}"


def start_name(epoch: str) -> str:
    return f"{EPOCHS}/{epoch}/start"


def record_name(epoch: str, batch: Batch, attempt: int) -> str:
    return f"{EPOCHS}/{epoch}/records/{batch:012d}-{attempt:04d}"


def object_name(
    epoch: str, operator: str, worker: int, incarnation: Incarnation, batch: Batch, attempt: int, number: int = 0
) -> str:
    """The name of a worker's backup of one batch.

    Different arguments give different names. As epoch, incarnation and task attempt are among them, a driver
    or task that is still alive after it was replaced never overwrites an object some record names.

    >>> object_name("00000001-0123456789abcdef", "count", 3, 0, 12, 0)
    'objects/00000001-0123456789abcdef/count/00003-00000-000000000012-0000-0000'
    """
    if EpochId.parse(epoch) is None:
        raise UsageError(f"{epoch!r} is not the name of an epoch.", epoch=epoch)
    if not operator or min(worker, incarnation, batch, attempt, number) < 0:
        raise UsageError("An object's origin needs an operator and numbers >= 0.", operator=operator, worker=worker)
    # quote() keeps dots, and a part made of dots alone would name another folder.
    folder = quote(operator, safe="").replace(".", "%2E")
    return f"{OBJECTS}/{epoch}/{folder}/{worker:05d}-{incarnation:05d}-{batch:012d}-{number:04d}-{attempt:04d}"


def parse_object_name(name: str) -> ObjectOrigin | None:
    """The arguments `object_name` was given, or None for a name it cannot have made."""
    match = _OBJECT.fullmatch(name)
    if match is None or EpochId.parse(match[1]) is None:
        return None
    worker, incarnation, batch, number, attempt = map(int, match.groups()[2:])
    return ObjectOrigin(match[1], unquote(match[2]), worker, Incarnation(incarnation), Batch(batch), number, attempt)
