"""Items that producers push to a receiver: a source without anything to read again.

A chunk is a lane for the length of a tick. Spark counts ticks; what belongs to one is whatever arrives meanwhile.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.onbad import SKIP, check_on_bad
from afspark.push.wire.security import Access
from afspark.sources.chunks import LaneTick
from afspark.sources.source import Chunk, LogStore, Offset, Planner, Source, require_columns

if TYPE_CHECKING:
    from afspark.push.consumer.waiting import Watch


@dataclass(frozen=True)
class Pushed(Source, kind="pushed"):
    """An Arrow Flight endpoint that takes items of one schema from any number of producers.

    ``port`` 0 takes any free one. ``tick_seconds`` is how long a batch takes items while they keep coming. Anything
    but the loopback address needs ``token_file`` and a certificate with its key. ``receivers`` run in the driver, or
    (``where="executors"``) as tasks on executors, each with its share of the lanes. ``on_bad``: whether items that an
    operator cannot take are left out and kept in quarantine ("skip"), or stop the query ("stop").
    """

    replayable: ClassVar[bool] = False
    #: where a receiver listens and what it takes binds nobody
    changeable: ClassVar[frozenset[str]] = frozenset(
        {
            "host",
            "port",
            "tick_seconds",
            "where",
            "token_file",
            "certificate_file",
            "key_file",
            "buffer_bytes",
            "max_message_bytes",
            "max_producers",
            "max_rows_per_second",
            "on_bad",
        }
    )

    columns: str
    lanes: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    tick_seconds: float = 1.0
    where: str = "driver"
    receivers: int = 1
    token_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    buffer_bytes: int = 256_000_000
    max_message_bytes: int = 64_000_000
    max_producers: int = 1_000
    max_rows_per_second: float | None = None
    on_bad: str = SKIP

    def __post_init__(self) -> None:
        if self.tick_seconds <= 0 or self.receivers < 1 or not 0 <= self.port < 1 << 16:
            raise UsageError(
                "A receiver needs a tick of more than 0 seconds, a port of 0 to 65535, and to be there at least once.",
                tick_seconds=self.tick_seconds,
                port=self.port,
                receivers=self.receivers,
            )
        if self.where not in ("driver", "executors"):
            raise UsageError(f"Receivers run in the driver or on executors, not {self.where!r}.", where=self.where)
        check_on_bad(self.on_bad)
        self.schema()

    @classmethod
    def of(cls, schema: pa.Schema, **settings: Any) -> Pushed:
        """The source for items of a schema."""
        return cls(base64.b64encode(schema.serialize().to_pybytes()).decode(), **settings)

    def schema(self) -> pa.Schema:
        try:
            return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))
        except (ValueError, OSError, pa.ArrowException) as error:
            raise UsageError(f"The schema of pushed items cannot be read: {error}.") from error

    def access(self, worker_secret: str | None = None) -> Access:
        """What a worker needs to reach the receiver; without the workers' secret, what a producer needs."""
        return Access(token_file=self.token_file, root_certs_file=self.certificate_file, worker_secret=worker_secret)

    def planner(self, log: LogStore) -> Planner:
        return TickPlanner(log, self)

    def read(self, chunk: LaneTick) -> Iterator[pa.RecordBatch]:
        raise UsageError("Pushed items are taken off their lane by its worker, once.")

    def divided(self, batch_bytes: int, workers: int) -> Pushed:
        """Every worker has a lane of its own."""
        return replace(self, lanes=workers)

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        require_columns(self.schema(), needs or {})


class TickPlanner(Planner):
    """Counts ticks: one more whenever a receiver has something."""

    def __init__(self, log: LogStore, source: Pushed) -> None:
        self._log, self._source = log, source
        self._watch: Watch | None = None

    def discover(self) -> Offset:
        return {"chunks": sys.maxsize}

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        return {"chunks": min(end["chunks"], start["chunks"] + self._source.lanes)}

    def latest(self, start: Offset, end: Offset | None, max_bytes: int) -> Offset:
        if self._watch is None:
            # Not before: who only counts chunks needs no client.
            from afspark.push.consumer.waiting import Watch

            self._watch = Watch(self._log, self._source.access())
        return self.limit(start, self.discover(), max_bytes) if self._watch.anything() else start

    def chunks(self, start: Offset, end: Offset) -> list[LaneTick]:
        lanes = self._source.lanes
        ticks = range(start["chunks"] // lanes, end["chunks"] // lanes)
        return [LaneTick(lane=lane, tick=tick) for tick in ticks for lane in range(lanes)]

    def shares(self, chunks: Sequence[Any], workers: int) -> list[list[Chunk]]:
        """Every worker has the lane of its number."""
        return [[chunk for chunk in chunks if chunk.lane == worker] for worker in range(workers)]
