"""Items that producers push to a receiver: a source without anything to read again.

A chunk is a lane for the length of a tick. Spark counts ticks; what belongs to one is whatever arrives meanwhile.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from afspark.errors import UsageError
from afspark.runtime.sources.source import Chunk, LogStore, Offset, Planner, Source, require_columns

#: Where a receiver says that it has something, below the source's folder.
SIGNAL = "signal"


@dataclass(frozen=True)
class Pushed(Source, kind="pushed"):
    """An Arrow Flight endpoint that takes items of one schema from any number of producers.

    ``port`` 0 takes any free one. ``tick_seconds`` is how long a batch takes items while they keep coming. Anything
    but the loopback address needs ``token_file`` and a certificate with its key. ``receivers`` run in the driver, or
    (``where="executors"``) as tasks on executors, each with its share of the lanes.
    """

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

    def planner(self, log: LogStore) -> Planner:
        return TickPlanner(log, self.lanes)

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        raise UsageError("Pushed items are taken off their lane by its worker, once.")

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        require_columns(self.schema(), needs or {})


class TickPlanner(Planner):
    """Counts ticks: one more whenever receivers have something, or have just been started.

    Spark asks in a process of its own, which cannot see the receivers; they leave a signal in the log's folder.
    """

    def __init__(self, log: LogStore, lanes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._lanes, self._clock = log, lanes, clock

    def discover(self) -> Offset:
        raise NotImplementedError

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        return {"chunks": min(end["chunks"], start["chunks"] + self._lanes)}

    def chunks(self, start: Offset, end: Offset) -> list[Chunk]:
        ticks = range(start["chunks"] // self._lanes, end["chunks"] // self._lanes)
        return [{"lane": lane, "tick": tick, "bytes": 1} for tick in ticks for lane in range(self._lanes)]


def lane_shares(chunks: Sequence[Chunk], workers: int) -> list[list[Chunk]]:
    """Every worker has the lane of its number."""
    return [[chunk for chunk in chunks if chunk["lane"] == worker] for worker in range(workers)]
