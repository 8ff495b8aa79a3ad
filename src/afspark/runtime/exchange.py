"""Items on their way to the workers that own them, over Spark's shuffle.

Every map partition sends exactly one parcel to every worker, empty or not, so that each worker can say which
output of which map partition it has applied: after a fetch failure Spark may recompute a map partition, and
a function that is not deterministic then gives other contents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.errors import AfsparkError, from_json
from afspark.model.kernels.hashing import hash_columns

#: Column in which a combiner may hand over the hashes it has computed already.
HASH_COLUMN = "hash"


class Packet(NamedTuple):
    """Items with what is known of them: the step they were sent in, the pane they fall into (None: not known)."""

    items: pa.RecordBatch
    step: int = 0
    pane: int | None = None


@dataclass(frozen=True)
class Parcel:
    """What one map partition sends to one worker. ``digest`` covers the parcels to all workers.

    ``origin`` names the operator the items come from ("" for the source), ``partition`` the map partition; parcels
    are opened in the order of ``partition``, which fixes the order of float sums.
    """

    origin: str
    partition: int
    items: int
    size: int
    digest: str
    payload: bytes
    feedback: bool = False
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
        failure = self.failure.to_json() if self.failure else None
        head = [self.origin, self.partition, self.items, self.size, self.digest, self.feedback, failure]
        return json.dumps(head).encode() + b"\n" + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> Parcel:
        head, _, payload = data.partition(b"\n")
        origin, partition, items, size, digest, feedback, failure = json.loads(head)
        return cls(
            origin, partition, items, size, digest, payload, feedback, from_json(failure) if failure else None
        )


def address(
    packets: Iterable[Packet], *, key: Sequence[str], partition: int, workers: int
) -> list[tuple[int, bytes]]:
    """Encodes the items for each worker; without a key all items of a partition go to one worker."""
    shares: list[list[Packet]] = [[] for _ in range(workers)]
    for packet in packets:
        if not key:
            shares[partition % workers].append(packet)
            continue
        for worker, rows in enumerate(split(packet.items, owners(packet.items, key, workers), workers)):
            if rows.num_rows:
                shares[worker].append(packet._replace(items=rows))
    return [(worker, pack_packets(share)) for worker, share in enumerate(shares)]


def parcels(
    addressed: Sequence[tuple[int, bytes]],
    *,
    origin: str = "",
    partition: int,
    items: int,
    size: int,
    digest: str | None = None,
    feedback: bool = False,
) -> list[tuple[int, Parcel]]:
    """Addressed parcels; the first one carries the counts, so that sums over workers are right."""
    if digest is None:
        whole = hashlib.blake2b(digest_size=16)
        for _, payload in addressed:
            whole.update(hashlib.blake2b(payload, digest_size=16).digest())
        digest = whole.hexdigest()
    return [
        (
            worker,
            Parcel(origin, partition, 0 if worker else items, 0 if worker else size, digest, payload, feedback),
        )
        for worker, payload in addressed
    ]


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def owners(batch: pa.RecordBatch, key: Sequence[str], workers: int) -> npt.NDArray[np.uint64]:
    """Worker of each row, by the stable hash of its key."""
    if HASH_COLUMN in batch.schema.names:
        hashes = batch.column(HASH_COLUMN).to_numpy(zero_copy_only=False)
    else:
        hashes = hash_columns(batch, key)
    return (hashes >> np.uint64(32)) % np.uint64(workers)


def split(batch: pa.RecordBatch, owner: npt.NDArray[np.uint64], workers: int) -> list[pa.RecordBatch]:
    """The rows of each worker, in their old order."""
    if workers == 1:
        return [batch]
    order = np.argsort(owner.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(workers + 1, dtype=np.uint64))
    sorted_rows = batch.take(pa.array(order))
    return [sorted_rows.slice(bounds[w], bounds[w + 1] - bounds[w]) for w in range(workers)]


def pack_packets(packets: Sequence[Packet]) -> bytes:
    return pack_parts([((packet.step, packet.pane), packet.items) for packet in packets])


def open_packets(data: bytes) -> Iterator[Packet]:
    for (step, pane), items in open_parts(data):
        yield Packet(items, step, pane)


def pack_parts(parts: Sequence[tuple[Any, pa.RecordBatch]]) -> bytes:
    """Record batches of any schemas, each with a label that is JSON; empty bytes for none.

    Neighbours of one label and schema share an Arrow stream.
    """
    if not parts:
        return b""
    groups: list[tuple[Any, list[pa.RecordBatch]]] = []
    for label, batch in parts:
        if groups and groups[-1][0] == label and groups[-1][1][0].schema.equals(batch.schema):
            groups[-1][1].append(batch)
        else:
            groups.append((label, [batch]))
    streams = [encode(batches) for _, batches in groups]
    head = json.dumps([[label, len(stream)] for (label, _), stream in zip(groups, streams, strict=True)])
    return b"".join([head.encode(), b"\n", *streams])


def open_parts(data: bytes | memoryview) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Inverse of :func:`pack_parts`, without copying."""
    if not data:
        return
    whole = bytes(data)
    start = whole.index(b"\n") + 1
    view = memoryview(whole)
    for label, length in json.loads(whole[: start - 1]):
        for batch in pa.ipc.open_stream(view[start : start + length]):
            yield (tuple(label) if isinstance(label, list) else label), batch
        start += length


def encode(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Arrow IPC stream of the batches; empty bytes for none."""
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode(payload: bytes) -> list[pa.RecordBatch]:
    """Inverse of :func:`encode`."""
    return list(pa.ipc.open_stream(payload)) if payload else []
