"""Makes the backups of an operator's workers into those of others in number: tasks that read and write the store alone.

What belongs to a key goes to the worker that owns it now (`split_share`): one task for each worker there was, which
writes an object for each there will be, so that the image of a new worker is in several objects with different keys.
What belongs to none, and feedback under way, is brought together (`join_shares`): one task for each new worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from afspark.errors import AfsparkError, CheckpointError, UsageError
from afspark.model.kernels.hashing import hash_columns, owners_of
from afspark.model.kernels.plain_arrays import Array
from afspark.model.operator import Operator
from afspark.model.state_label import StateLabel
from afspark.model.states import HeapColumns, State, StateSpec
from afspark.model.windows import Fading
from afspark.numbers import Batch, Incarnation, PaneNumber
from afspark.protocol.operator_config import OperatorConfig
from afspark.store import Chain, ObjectRef, load_chain, object_name, seal
from afspark.store.images import FeedbackPart, ImageKey
from afspark.task.backup_header import BackupHeader
from afspark.task.backup_numbers import new_attempt
from afspark.task.bad_item_search import as_failure
from afspark.task.task_environment import TaskEnvironment

StateImages = dict[StateLabel, list[pa.RecordBatch]]


@dataclass(frozen=True, kw_only=True)
class Redivision:
    """What the tasks have to know: the operator as it will be (``config``), and what there is of its workers so far.

    ``incarnation``: that of the new workers, whose backups are of ``batch``. ``needed_from``: the first pane that an
    open window needs.
    """

    config: OperatorConfig
    batch: Batch
    incarnation: Incarnation
    #: by former worker
    chains: Mapping[int, tuple[Chain, Chain]]
    needed_from: PaneNumber | None = None
    #: the states whose cells belong to no key
    apart: frozenset[str] = frozenset()

    @property
    def former(self) -> int:
        return len(self.chains)


@dataclass(frozen=True)
class Joined:
    """What one new worker is given as a whole: local shares, and the feedback of some former workers."""

    worker: int
    shares: tuple[int, ...]
    feedback: tuple[int, ...]


@dataclass(frozen=True)
class Written:
    """An object with a part of a new worker's state; parts come in the order of their numbers."""

    worker: int
    number: int
    ref: ObjectRef


@dataclass
class _FormerShare:
    """The durable state of one former worker."""

    states: StateImages = field(default_factory=dict)
    feedback: dict[FeedbackPart, list[pa.RecordBatch]] = field(default_factory=dict)


def split_share(plan: Redivision, environment: TaskEnvironment, worker: int) -> list[Written | AfsparkError]:
    """Divides what belongs to keys of a former worker among the new ones."""
    return _told(plan, lambda operator: _split(plan, operator, worker))


def join_shares(
    plan: Redivision, joined: Sequence[Joined], environment: TaskEnvironment, number: int
) -> list[Written | AfsparkError]:
    """Brings together what belongs to no key."""
    return _told(plan, lambda operator: _join(plan, operator, joined[number]))


def states_apart(operator: Operator) -> frozenset[str]:
    """The states of a keyed operator whose cells belong to no key."""
    specs = operator.states()
    return frozenset(
        state
        for state, spec in specs.items()
        if not spec.disjoint and operator.keys_of(state, pa.RecordBatch.from_pylist([], spec.pairs_schema)) is None
    )


def _told(plan: Redivision, work: Callable[[Operator], Iterable[Written]]) -> list[Written | AfsparkError]:
    """What comes of it; an error is an answer, because a task that fails is only tried again."""
    operator: Operator = cloudpickle.loads(plan.config.pristine)
    try:
        return list(work(operator))
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        return [as_failure(error, operator)]


def _split(plan: Redivision, operator: Operator, worker: int) -> Iterator[Written]:
    specs = operator.states()
    parts: dict[int, dict[ImageKey, pa.RecordBatch]] = {}
    for label, batches in _loaded(plan, specs, worker).states.items():
        if label.state in plan.apart:
            continue
        image = _resolved(plan, specs[label.state], batches)
        hashes = _hashes(operator, specs[label.state], label.state, image)
        _refuse_strangers(plan, operator, label.state, image, hashes, worker)
        for owner, cells in divided(image, owners_of(hashes, plan.config.workers), plan.config.workers):
            parts.setdefault(owner, {})[label] = cells
    for owner, images in sorted(parts.items()):
        yield _write(plan, owner, worker, images)


def _join(plan: Redivision, operator: Operator, joined: Joined) -> Iterator[Written]:
    specs = operator.states()
    shares = {one: _loaded(plan, specs, one) for one in sorted({*joined.shares, *joined.feedback})}
    images: dict[ImageKey, pa.RecordBatch] = {}
    found: dict[StateLabel, list[list[pa.RecordBatch]]] = {}
    for one in joined.shares:
        for label, batches in shares[one].states.items():
            if not plan.config.keyed or label.state in plan.apart:
                found.setdefault(label, []).append(batches)
    for label, several in found.items():
        images[label] = _added_up(plan, specs[label.state], several)
    images |= _feedback([shares[one].feedback for one in joined.feedback])
    if images:
        # After the parts that each former worker has given.
        yield _write(plan, joined.worker, plan.former, images)


def _loaded(plan: Redivision, specs: Mapping[str, StateSpec], worker: int) -> _FormerShare:
    """What the backups of a former worker hold; `CheckpointError` if some of it cannot be read."""
    loaded = load_chain(plan.config.store, *plan.chains[worker])
    if loaded.damaged:
        names = ", ".join(damage.name for damage in loaded.damaged)
        raise CheckpointError(
            f"{plan.config.operator_name!r} cannot go from {plan.former} workers to {plan.config.workers}, because a"
            f" backup of worker {worker} cannot be read: {names}.",
            remedy=f"Start it with {plan.former} workers, which tells what is lost, and change their number later.",
            operator=plan.config.operator_name,
            worker=worker,
        )
    share = _FormerShare()
    for key, batches in loaded.images.items():
        if isinstance(key, FeedbackPart):
            if key.batch == plan.batch:
                share.feedback[key] = batches
        elif isinstance(key, StateLabel) and key.state in specs:
            closed = key.pane is not None and plan.needed_from is not None and key.pane < plan.needed_from
            if not closed:
                share.states[key] = batches
    return share


def _resolved(plan: Redivision, spec: StateSpec, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The state that a chain of images comes to, as one image."""
    if len(batches) == 1:
        return batches[0]
    return _added_up(plan, spec, [batches])


def _added_up(plan: Redivision, spec: StateSpec, shares: Sequence[Sequence[pa.RecordBatch]]) -> pa.RecordBatch:
    """The sum of several shares of a state, each a chain of images, as one image."""
    if len(shares) == 1 and len(shares[0]) == 1:
        return shares[0][0]
    fading = _fading(plan)
    chains: Mapping[int, Iterable[pa.RecordBatch]] = dict(enumerate(shares))
    if fading is not None:
        # In units of the newest of all.
        chains = fading.restore(chains)
    first, *others = (_restored(spec, chain) for chain in chains.values())
    if others:
        first.begin()
        for other in others:
            first.merge_from(other.export())
        first.update_drift()
        first.issue(0.0, everything=True)
    image = first.dump()
    return image if fading is None else fading.stamped(image)


def _fading(plan: Redivision) -> Fading | None:
    window = plan.config.window
    return None if window is None or window.has_panes else Fading(window, HeapColumns())


def _restored(spec: StateSpec, chain: Iterable[pa.RecordBatch]) -> State:
    state = spec.open(HeapColumns(), "share")
    state.restore(chain)
    return state


def _hashes(operator: Operator, spec: StateSpec, state: str, image: pa.RecordBatch) -> Array:
    """The stable hashes of the keys that cells belong to."""
    if spec.disjoint:
        return hash_columns(image, ["key"])
    keys = operator.keys_of(state, image)
    if keys is None or keys.num_rows != image.num_rows:
        raise UsageError(
            f"keys_of of {type(operator).__name__} gives {0 if keys is None else keys.num_rows} keys for"
            f" {image.num_rows} cells of {state!r}.",
            remedy="It has to give one row for each cell, or None for an empty batch as well.",
            state=state,
        )
    return hash_columns(keys, operator.key)


def _refuse_strangers(
    plan: Redivision, operator: Operator, state: str, image: pa.RecordBatch, hashes: Array, worker: int
) -> None:
    """`UsageError` if cells belong to keys that were another worker's: then the keys are not those of the operator."""
    owners = owners_of(hashes, plan.former)
    strange = np.flatnonzero(owners != worker)
    if len(strange):
        cell = image.slice(int(strange[0]), 1).to_pylist()[0]
        raise UsageError(
            f"A cell of {state!r} at worker {worker} of {plan.former} belongs to worker {owners[strange[0]]} by its"
            f" key: {cell!r}.",
            remedy=f"Mend keys_of of {type(operator).__name__}, or start with {plan.former} workers.",
            state=state,
            worker=worker,
        )


def divided(image: pa.RecordBatch, owners: Array, workers: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each owner that has some, in their order."""
    # Of short integers numpy sorts the stable way in linear time.
    short = owners.astype(np.uint16 if workers <= 1 << 16 else np.uint32)
    ends = np.cumsum(np.bincount(short, minlength=workers))
    ordered = image.take(pa.array(np.argsort(short, kind="stable"))).replace_schema_metadata(image.schema.metadata)
    for owner, end in enumerate(ends.tolist()):
        start = int(ends[owner - 1]) if owner else 0
        if end > start:
            yield owner, ordered.slice(start, end - start)


def _feedback(given: Sequence[Mapping[FeedbackPart, Sequence[pa.RecordBatch]]]) -> dict[ImageKey, pa.RecordBatch]:
    """Feedback of several workers as that of one, in the order of the workers and of sending."""
    numbers: dict[str, int] = {}
    found: dict[ImageKey, pa.RecordBatch] = {}
    for parts in given:
        for part in sorted(parts):
            for items in parts[part]:
                number = numbers.get(part.to, 0)
                found[FeedbackPart(part.to, part.batch, number)] = items
                numbers[part.to] = number + 1
    return found


def _write(plan: Redivision, worker: int, number: int, images: Mapping[ImageKey, pa.RecordBatch]) -> Written:
    config = plan.config
    cells = sum(image.num_rows for image in images.values())
    header = BackupHeader(
        query=config.query_id,
        operator=config.operator_name,
        worker=worker,
        incarnation=plan.incarnation,
        batch=plan.batch,
        full=True,
        cells=cells,
    )
    name = object_name(config.epoch, config.operator_name, worker, plan.incarnation, plan.batch, new_attempt(), number)
    data = seal(header.to_json(), images)
    config.store.put(name, data)
    return Written(worker, number, ObjectRef.of(name, data, cells=cells, full=True))
