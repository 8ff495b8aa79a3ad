"""The sending side of a stage: items are read where they are and packed into parcels, one for each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from afspark.errors import AfsparkError
from afspark.model.onbad import SKIP
from afspark.model.operator import Transform
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet, Parcel, address, joint_digest, open_packets, pack_bad, parcels
from afspark.resident.residents import kept_by
from afspark.sources import Chunk
from afspark.task.bad_item_search import as_failure, without_bad
from afspark.task.feed import Feed
from afspark.task.ingest import ChunkPackets, GivenPackets, Ingest, PassingPackets
from afspark.task.stage_inputs import Addressed, OutputInput, SourceInput, UserCode
from afspark.task.task_environment import TaskEnvironment


def send_chunks(
    config: OperatorConfig, work: UserCode, stage_input: SourceInput, now: float, workers: Iterable[int]
) -> Iterator[Addressed]:
    """The parcels of what these workers read of a source."""
    for worker in workers:
        chunks = stage_input.shares[worker]
        items = work.ingest(ChunkPackets(stage_input.source, chunks), stage_input.transforms, now)
        first = Parcel(origin=stage_input.name, partition=worker)
        yield from _packed(config, work, items, first, partial(bytes_of, chunks))


def send_batches(
    config: OperatorConfig,
    work: UserCode,
    name: str,
    transforms: Sequence[Transform],
    now: float,
    batches: Iterable[pa.RecordBatch],
    partition: int,
) -> list[Addressed]:
    """The parcels of one partition of a DataFrame."""
    sized = _Sized(batches)
    whole = config.bad.choice(name) == SKIP
    # What has passed is gone, so that nothing can be left out of it here. Null keys as such are found by their owner.
    config = replace(config, bad=replace(config.bad, spares_null_keys=whole))
    items = work.ingest(PassingPackets(sized, whole=whole), transforms, now)
    return _packed(config, work, items, Parcel(origin=name, partition=partition), lambda: sized.bytes)


def send_kept(
    environment: TaskEnvironment,
    config: OperatorConfig,
    work: UserCode,
    stage_input: OutputInput,
    now: float,
    workers: Iterable[int],
) -> Iterator[Addressed]:
    """The parcels of what workers of another operator, which live here, keep for this one."""
    for worker in workers:
        first = Parcel(origin=stage_input.name, partition=worker, feedback=stage_input.feedback)
        try:
            found = [
                kept_by(environment, stage_input.residents, worker, stage_input.batch, port)
                for port in stage_input.ports
            ]
        except AfsparkError as error:
            yield from _failed(config, first, error)
            continue
        sent = sorted((packet for data in found for packet in open_packets(data)), key=lambda packet: packet.step)
        packets = GivenPackets(sent)
        items = (
            Ingest(packets, stage_input.transforms)
            if stage_input.feedback
            else work.ingest(packets, stage_input.transforms, now)
        )
        yield from _packed(config, work, items, replace(first, digest=joint_digest(found)))


def _packed(
    config: OperatorConfig, work: UserCode, items: Ingest, first: Parcel, size: Callable[[], int] = lambda: 0
) -> list[Addressed]:
    feed = Feed([(first.origin, items)])

    def addressed() -> list[bytes]:
        packets = (packet for _, given in feed.rest() for packet in given if isinstance(packet, Packet))
        return address(
            packets, key=work.key, partition=first.partition, workers=config.workers, everywhere=first.feedback
        )

    try:
        payloads, bad = without_bad(feed, addressed, _nothing_to_undo, config.bad, work.operator.key)
    except Exception as error:  # noqa: BLE001 - input and user code may raise anything; it must not be retried blindly
        return _failed(config, first, as_failure(error, work.operator))
    counted = replace(first, items=items.items, size=size(), latest=items.latest, unplaced=items.unplaced)
    if bad.items:
        counted = replace(counted, bad=pack_bad(bad.within(config.bad.most_bytes)))
    return parcels(payloads, counted)


def _nothing_to_undo() -> None:
    """Steps and combiners before an exchange leave nothing behind."""


def _failed(config: OperatorConfig, first: Parcel, failure: AfsparkError) -> list[Addressed]:
    return [(worker, replace(first, failure=failure)) for worker in range(config.workers)]


class _Sized:
    """Counts the bytes of the batches that pass."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.batches = batches
        self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.bytes += batch.nbytes
            yield batch


def bytes_of(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.bytes for chunk in chunks)
