"""Items on their way to the workers that own them, over Spark's shuffle.

Every map partition sends exactly one parcel to every worker, empty or not, so that each worker can say which
output of which map partition it has applied: after a fetch failure Spark may recompute a map partition, and
a function that is not deterministic then gives other contents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.errors import AfsparkError, from_json
from afspark.model.kernels.hashing import hash_columns

#: Column in which a combiner may hand over the hashes it has computed already.
HASH_COLUMN = "hash"


@dataclass(frozen=True)
class Parcel:
    """What one map partition sends to one worker. ``digest`` covers the parcels to all workers."""

    partition: int
    items: int
    size: int
    digest: str
    payload: bytes
    #: why the map partition could not be read; the other fields mean nothing then
    failure: AfsparkError | None = None

    def to_bytes(self) -> bytes:
        """The parcel for a binary column: a line of JSON, then the payload."""
        failure = self.failure.to_json() if self.failure else None
        head = json.dumps([self.partition, self.items, self.size, self.digest, failure])
        return head.encode() + b"\n" + self.payload

    @classmethod
    def from_bytes(cls, data: bytes) -> Parcel:
        head, _, payload = data.partition(b"\n")
        partition, items, size, digest, failure = json.loads(head)
        return cls(partition, items, size, digest, payload, from_json(failure) if failure else None)


def pack(
    batches: Iterable[pa.RecordBatch], *, key: Sequence[str], partition: int, workers: int
) -> list[tuple[int, bytes]]:
    """Encodes the items for each worker; without a key all items of a partition go to one worker."""
    shares: list[list[pa.RecordBatch]] = [[] for _ in range(workers)]
    for batch in batches:
        if not key:
            shares[partition % workers].append(batch)
            continue
        for worker, rows in enumerate(split(batch, owners(batch, key, workers), workers)):
            if rows.num_rows:
                shares[worker].append(rows)
    return [(worker, encode(share)) for worker, share in enumerate(shares)]


def parcels(packed: Sequence[tuple[int, bytes]], *, partition: int, items: int, size: int) -> list[tuple[int, Parcel]]:
    """Addressed parcels; the first one carries the counts, so that sums over workers are right."""
    whole = hashlib.blake2b(digest_size=16)
    for _, payload in packed:
        whole.update(hashlib.blake2b(payload, digest_size=16).digest())
    digest = whole.hexdigest()
    return [
        (worker, Parcel(partition, 0 if worker else items, 0 if worker else size, digest, payload))
        for worker, payload in packed
    ]


def owners(batch: pa.RecordBatch, key: Sequence[str], workers: int) -> npt.NDArray[np.uint64]:
    """Worker of each row, by the stable hash of its key."""
    if HASH_COLUMN in batch.schema.names:
        hashes = batch.column(HASH_COLUMN).to_numpy(zero_copy_only=False)
    else:
        hashes = hash_columns(batch, key)
    return (hashes >> np.uint64(32)) % np.uint64(workers)


def split(batch: pa.RecordBatch, owner: npt.NDArray[np.uint64], workers: int) -> list[pa.RecordBatch]:
    """The rows of each worker, in their old order."""
    order = np.argsort(owner.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(workers + 1, dtype=np.uint64))
    sorted_rows = batch.take(pa.array(order))
    return [sorted_rows.slice(bounds[w], bounds[w + 1] - bounds[w]) for w in range(workers)]


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
