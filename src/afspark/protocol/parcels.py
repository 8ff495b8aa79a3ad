"""Items on their way to the workers that own them, over Spark's shuffle.

Every map partition sends exactly one parcel to every worker, empty or not, so that each worker can say which
output of which map partition it has applied: after a fetch failure Spark may recompute a map partition, and
a function that is not deterministic then gives other contents.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.errors import AfsparkError, OperatorMisuse, from_json
from afspark.model.kernels.digest_kernels import digest_bytes
from afspark.model.kernels.hashing import hash_columns, owners_of
from afspark.numbers import PaneNumber
from afspark.protocol.bad_items import Bad
from afspark.store.quarantine import Count

#: The digest of a single port on which nothing is kept.
NOTHING_KEPT = "-"


class Packet(NamedTuple):
    """Items with what is known of them: the step they were sent in, the pane they fall into (None: not known)."""

    items: pa.RecordBatch
    step: int = 0
    pane: PaneNumber | None = None


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """What one map partition sends to one worker. ``digest`` covers the parcels to all workers.

    ``origin`` names the operator the items come from ("" for the source), ``partition`` the map partition; parcels
    are opened in the order of ``partition``, which fixes the order of float sums. The first worker's parcel carries
    the counts of the whole map partition, so that sums over workers are right.
    """

    origin: str = ""
    partition: int
    digest: str = ""
    payload: bytes | memoryview = b""
    feedback: bool = False
    items: int = 0
    size: int = 0
    #: greatest time, and items without one, where items were combined before they were sent
    latest: float | None = None
    unplaced: int = 0
    #: what was left out of the map partition, as `pack_bad` gives it
    bad: str = ""
    #: why the map partition could not be read; the other fields mean nothing then
    failure: AfsparkError | None = None

    @property
    def label(self) -> str:
        """Names the map partition in reports."""
        return f"{self.origin}{'<' if self.feedback else ':'}{self.partition}"

    def packets(self) -> Iterator[Packet]:
        return open_packets(self.payload)

    def to_bytes(self) -> bytes:
        """The parcel for a binary column: a line of JSON, then the payload."""
        head = {**vars(self), "failure": self.failure.to_json() if self.failure else None}
        del head["payload"]
        return b"".join([json.dumps(head).encode(), b"\n", self.payload])

    @classmethod
    def from_bytes(cls, data: bytes) -> Parcel:
        start = data.index(b"\n") + 1
        fields, payload = json.loads(data[:start]), memoryview(data)[start:]
        failure = from_json(fields.pop("failure")) if fields["failure"] else fields.pop("failure")
        return cls(**fields, payload=payload, failure=failure)


def address(
    packets: Iterable[Packet], *, key: Sequence[str], partition: int, workers: int, everywhere: bool = False
) -> list[bytes]:
    """Encodes the items for each worker: by key, or all of a partition for one worker, or for every worker."""
    shares: list[list[Packet]] = [[] for _ in range(workers)]
    for packet in packets:
        missing = [column for column in key if column not in packet.items.schema.names]
        if missing and not everywhere:
            raise OperatorMisuse(
                f"Items are sent by key, and have no column {missing[0]!r}.",
                remedy=f"They have {', '.join(packet.items.schema.names)}: add it with a map(), or use keyed=False.",
                column=missing[0],
            )
        if key and not missing:
            for worker, rows in enumerate(split(packet.items, owners(packet.items, key, workers), workers)):
                if rows.num_rows:
                    shares[worker].append(packet._replace(items=rows))
        elif everywhere:
            for share in shares:
                share.append(packet)
        else:
            shares[partition % workers].append(packet)
    return [pack_packets(share) for share in shares]


def parcels(payloads: Sequence[bytes], first: Parcel) -> list[tuple[int, Parcel]]:
    """A parcel for each worker, like ``first``; without a digest it is made from all payloads."""
    digest = first.digest or digest_of("".join(map(digest_of, payloads)).encode())
    plain = replace(first, digest=digest, items=0, size=0, latest=None, unplaced=0, bad="")
    return [
        (worker, replace(plain if worker else first, digest=digest, payload=payload))
        for worker, payload in enumerate(payloads)
    ]


def digest_of(data: bytes | memoryview) -> str:
    """Tells contents apart that come by chance, not those that somebody has made alike."""
    one, other = digest_bytes(np.frombuffer(data, np.uint8))
    return f"{one:016x}{other:016x}"


def joint_digest(found: Iterable[bytes | memoryview]) -> str:
    """The digest of what a worker keeps on several ports; empty ones count as such."""
    return "+".join(digest_of(data) if data else "" for data in found) or NOTHING_KEPT


def owners(batch: pa.RecordBatch, key: Sequence[str], workers: int) -> npt.NDArray[np.uint64]:
    """Worker of each row, by the stable hash of its key."""
    return owners_of(hash_columns(batch, key), workers)


def split(batch: pa.RecordBatch, owner: npt.NDArray[np.uint64], workers: int) -> list[pa.RecordBatch]:
    """The rows of each worker, in their old order."""
    if workers == 1:
        return [batch]
    order = np.argsort(owner.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(workers + 1, dtype=np.uint64))
    sorted_rows = batch.take(pa.array(order))
    return [sorted_rows.slice(bounds[w], bounds[w + 1] - bounds[w]) for w in range(workers)]


def pack_packets(packets: Sequence[Packet]) -> bytes:
    return bytes(packed_packets(packets))


def packed_packets(packets: Sequence[Packet]) -> memoryview:
    """As `pack_packets`, for those who do not send it to another process: it is copied once less."""
    return packed_parts([((packet.step, packet.pane), packet.items) for packet in packets])


def open_packets(data: bytes | memoryview) -> Iterator[Packet]:
    for (step, pane), items in open_parts(data):
        yield Packet(items, step, pane)


def pack_parts(parts: Sequence[tuple[Any, pa.RecordBatch]]) -> bytes:
    """Record batches of any schemas, each with a label that is JSON; empty bytes for none."""
    return bytes(packed_parts(parts))


def packed_parts(parts: Sequence[tuple[Any, pa.RecordBatch]]) -> memoryview:
    """As `pack_parts`. Neighbours of one label and schema share an Arrow stream."""
    if not parts:
        return memoryview(b"")
    groups: list[tuple[Any, list[pa.RecordBatch]]] = []
    for label, batch in parts:
        if groups and groups[-1][0] == label and groups[-1][1][0].schema.equals(batch.schema):
            groups[-1][1].append(batch)
        else:
            groups.append((label, [batch]))
    sizes = [_stream_size(batches) for _, batches in groups]
    head = json.dumps([[label, size] for (label, _), size in zip(groups, sizes, strict=True)]).encode() + b"\n"
    # As large as it will be from the start: memory that grows is copied, and new pages are slower than that.
    whole = pa.allocate_buffer(len(head) + sum(sizes))
    with pa.FixedSizeBufferWriter(whole) as sink:
        sink.write(head)
        for _, batches in groups:
            _write_stream(sink, batches)
    return memoryview(whole)


def open_parts(data: bytes | memoryview) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Inverse of :func:`pack_parts`, without copying."""
    if not data:
        return
    view = memoryview(data)
    head = _first_line(view)
    start = len(head)
    for label, length in json.loads(head):
        for batch in pa.ipc.open_stream(view[start : start + length]):
            yield (tuple(label) if isinstance(label, list) else label), batch
        start += length


def pack_bad(bad: Bad) -> str:
    """Items that were left out, as text for JSON."""
    counts = [asdict(count) for count in bad.counts]
    parts = [(number, batch) for number, batch in enumerate(bad.rows)]
    return json.dumps([counts, base64.b64encode(pack_parts(parts)).decode()])


def open_bad(text: str) -> Bad:
    """Inverse of :func:`pack_bad`."""
    counts, rows = json.loads(text)
    return Bad(tuple(Count(**one) for one in counts), tuple(batch for _, batch in open_parts(base64.b64decode(rows))))


def pack_schema(schema: pa.Schema) -> str:
    """The schema as text, for JSON."""
    return base64.b64encode(schema.serialize()).decode()


def open_schema(text: str) -> pa.Schema:
    """Inverse of :func:`pack_schema`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def encode(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Arrow IPC stream of the batches; empty bytes for none."""
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    _write_stream(sink, batches)
    return sink.getvalue().to_pybytes()


def _write_stream(sink: Any, batches: Sequence[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _stream_size(batches: Sequence[pa.RecordBatch]) -> int:
    sink = pa.MockOutputStream()
    _write_stream(sink, batches)
    return int(sink.size())


def _first_line(data: memoryview) -> bytes:
    size = 256
    while b"\n" not in (start := bytes(data[:size])) and size < len(data):
        size *= 4
    return start[: start.index(b"\n") + 1]


def decode(payload: bytes) -> list[pa.RecordBatch]:
    """Inverse of :func:`encode`."""
    return list(pa.ipc.open_stream(payload)) if payload else []
