"""A receiver as a plain Spark source: ``spark.readStream.format("afspark").schema(...).option("port", 7007).load()``.

Spark runs the reader in a process beside the driver, which is where the receiver lives. Items stay there until Spark
has committed the batch they were in; what would be lost with that process is bounded by the option ``items``.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from afspark.errors import UsageError

FORMAT = "afspark"


class LaneRange(InputPartition):
    """What of a lane belongs to a batch: what is above ``start`` and up to ``end``, by producer."""

    def __init__(self, address: str, access: Any, lane: int, start: Mapping[str, int], end: Mapping[str, int]) -> None:
        super().__init__(lane)
        self.address, self.access, self.lane, self.start, self.end = address, access, lane, start, end


class PushReader(DataSourceStreamReader):
    """Offsets are positions: ``{lane: {producer: end}}``."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self.options, self.arrow_schema = dict(options), schema
        self.lanes = int(self._option("lanes", "2"))
        self.port = self._port()
        self._process: Any = None
        #: by lane, sessions that need not be in the next offset
        self._over: dict[str, Sequence[str]] = {}

    def initialOffset(self) -> dict[str, Any]:
        return {str(lane): {} for lane in range(self.lanes)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        lanes = self._receiver(start).stats()["lanes"]
        return {lane: _furthest(start.get(lane, {}), found, self._over.get(lane, ())) for lane, found in lanes.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        address = self._receiver(start).announced.address
        return [LaneRange(address, self._access(), int(lane), start.get(lane, {}), ends) for lane, ends in end.items()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, LaneRange)
        from afspark.push.consumer.lane_client import LaneClient
        from afspark.push.receiver.session_listing import is_receiver_start

        ends = {name: end for name, end in partition.end.items() if not is_receiver_start(name)}
        position = dict(partition.start)
        with LaneClient(partition.address, partition.lane, access=partition.access) as client:
            while any(position.get(producer, 0) < end for producer, end in ends.items()):
                pulled = client.pull({}, after=position)
                if not pulled:
                    return  # lost with a receiver before this one
                for entry in pulled:
                    at, end = position.get(entry.producer, 0), ends.get(entry.producer, 0)
                    position[entry.producer] = max(at, entry.end)
                    if entry.batch is not None and at < entry.end <= end:
                        yield entry.batch.slice(max(0, at - entry.start))

    def commit(self, end: dict[str, Any]) -> None:
        from afspark.push.consumer.lane_client import LaneClient

        for lane, positions in end.items():
            address = self._receiver(end).announced.address
            with LaneClient(address, int(lane), access=self._access()) as client:
                # What the offset has dropped is dropped there.
                client.attach(positions)
                self._over[lane] = client.confirm(positions).over

    def stop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    # --- the receiver ---------------------------------------------------------------------------------------

    def _receiver(self, known: Mapping[str, Any]) -> Any:
        """The receiver of this process, which is only started where Spark asks for offsets; ``known``: one of them."""
        if self._process is None:
            from afspark.push.receiver.receiver_process import ReceiverProcess

            process = ReceiverProcess(
                self._plan({int(lane): positions for lane, positions in known.items()}), self._store()
            )
            process.open()
            self._process = process
        return self._process

    def _plan(self, listed: Mapping[int, Any]) -> Any:
        from afspark.push.receiver.limits import Limits
        from afspark.push.receiver.receiver_process import ReceiverPlan
        from afspark.push.wire.security import Security

        seconds = self.options.get("itemsseconds")
        return ReceiverPlan(
            number=0,
            lanes=tuple(range(self.lanes)),
            schema=self.arrow_schema,
            host=self._option("host", "127.0.0.1"),
            port=self.port,
            items=self._items() / (2 * self.lanes),
            seconds=None if seconds is None else float(seconds) / 2,
            unacked=float(self._option("unacked", "1000000")),
            listed=listed,
            limits=Limits(buffer_bytes=int(self._option("bufferBytes", "256000000"))),
            security=Security(
                token_file=self.options.get("tokenfile"),
                cert_file=self.options.get("certificatefile"),
                key_file=self.options.get("keyfile"),
            ),
        )

    def _items(self) -> float:
        given = self._option("items", "any" if "itemsseconds" in self.options else "0")
        try:
            return math.inf if given == "any" else float(given)
        except ValueError:
            raise UsageError(f"Option 'items' is {given!r}, neither a number nor 'any'.") from None

    def _store(self) -> Any:
        from afspark.store import open_store

        location = self.options.get("loglocation")
        if location is None and not (math.isinf(self._items()) and "itemsseconds" not in self.options):
            raise UsageError(
                "Items that must be backed up need a place for their log.",
                remedy="Give the option logLocation, or items=any.",
            )
        return open_store(location or tempfile.mkdtemp(prefix="afspark-receiver-"))

    def _port(self) -> int:
        if "port" not in self.options:
            raise UsageError("The source needs a port to listen at.", remedy='Add .option("port", 7007).')
        return int(self.options["port"])

    def _access(self) -> Any:
        from afspark.push.wire.security import Access

        secret = self._process.plan.worker_secret
        return Access(root_certs_file=self.options.get("certificatefile"), worker_secret=secret)

    def _option(self, name: str, default: str) -> str:
        return self.options.get(name.lower(), default)


def _furthest(start: Mapping[str, int], lane: Mapping[str, Any], over: Collection[str]) -> dict[str, int]:
    """How far a lane goes, without sessions that are ``over``; a new receiver may know less than Spark."""
    ends = dict(start)
    for producer, end in [*lane["positions"].items(), *lane["received"].items()]:
        ends[producer] = max(end, ends.get(producer, 0))
    return {producer: end for producer, end in ends.items() if producer not in over}


class PushSource(DataSource):
    """Registers as ``afspark``. Its options:

    - ``port``: where to listen (required)
    - ``host``: address to listen at; default 127.0.0.1
    - ``logLocation``: folder of the item log (required unless items is 'any')
    - ``items``: how many items a failure may take; default 0: none, 'any': nothing is backed up
    - ``itemsSeconds``: the same as a time
    - ``unacked``: how many items a producer may have under way unacknowledged; default 1000000
    - ``lanes``: partitions of a batch; default 2
    - ``tokenFile``: file with the token that producers must show
    - ``certificateFile``: TLS certificate
    - ``keyFile``: its key
    - ``bufferBytes``: memory for items that wait; default 256000000
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        raise UsageError("Pushed items need a schema.", remedy='Add .schema("sensor long, value double").')

    def streamReader(self, schema: StructType) -> PushReader:
        return PushReader({key.lower(): value for key, value in self.options.items()}, to_arrow_schema(schema))
