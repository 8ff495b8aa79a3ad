"""Bad items on their way to the quarantine: a worker keeps what there is room for, the driver looks at the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from afspark.protocol.bad_items import Bad
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.requests import TaskRequest
from afspark.store.quarantine import LEAST_BYTES, BadBatch, Quarantine, rows_name
from afspark.task.bad_item_search import without_bad

if TYPE_CHECKING:
    from afspark.task.feed import Feed

T = TypeVar("T")


def take_items(
    run: Callable[[], T],
    again: Callable[[], None],
    config: OperatorConfig,
    request: TaskRequest,
    feed: Feed,
    key: Sequence[str],
    before: Sequence[BadBatch],
    *,
    rehearse: Callable[[], T],
) -> tuple[T, list[BadBatch]]:
    """What ``run`` makes of the items that the operator can take; and the others, which are durable by then.

    ``again`` undoes what an attempt has done. ``before``: what the batch has left out in earlier steps. ``rehearse``:
    the same as ``run`` where nothing but a search depends on it.
    """
    if not config.pristine:
        return run(), []
    made, bad = without_bad(feed, run, again, config.bad, key, rehearse=rehearse)
    bad = feed.bad().and_also(bad)
    return made, [quarantined(bad, config, request, before)] if bad.items else []


def quarantined(bad: Bad, config: OperatorConfig, request: TaskRequest, before: Sequence[BadBatch]) -> BadBatch:
    """Puts items into quarantine, after ``before`` of the same batch; they are durable when this returns."""
    room = request.quarantine_room - sum(one.bytes for one in before)
    kept = bad.within(room if room >= LEAST_BYTES else 0)
    if not kept.rows:
        return BadBatch(counts=bad.counts)
    name = rows_name(
        request.batch, config.operator_name, request.worker, config.epoch, request.incarnation, number=len(before)
    )
    return BadBatch(counts=bad.counts, name=name, bytes=Quarantine(config.store).keep(name, kept.rows))
