"""Checkpoints that go from a primary into the memory of its secondary: taken on one host, applied on another.

A checkpoint is what the state has changed since the one before, and what the worker keeps for others: its reports, and
what it has sent. So a promoted secondary can answer for every batch that it has got in this way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pyspark import cloudpickle

from afspark.errors import AfsparkError, CorruptObject, ForeignObject
from afspark.model.state_label import StateLabel
from afspark.numbers import Batch, PaneNumber
from afspark.protocol.lifecycle import RESTORING, Present
from afspark.protocol.ports import ROWS, WINDOWS
from afspark.protocol.shipments import ShipAnswer, Shipment, ShipOrder
from afspark.resident.kept_files import kept_batch, output_name, report_name
from afspark.resident.side_files import Delta, deltas_in, drop_queued, leading_from
from afspark.resident.storage import StateStorage
from afspark.store import unseal
from afspark.task.backup import NEEDED_FROM
from afspark.task.pane_states import PaneStates
from afspark.task.task_context import LOCK_SECONDS
from afspark.task.task_environment import TaskEnvironment


class NotTaken(Exception):
    """A secondary cannot take a checkpoint; it has to be built anew."""


def take_checkpoints(
    orders: Sequence[ShipOrder], environment: TaskEnvironment, number: int
) -> Iterator[tuple[int, Shipment]]:
    """What the secondary of an order lacks, read beside the primary's state: none if that has kept nothing which it can
    take. Nothing comes from another host, or from another incarnation.
    """
    order = orders[number]
    if environment.host != order.source:
        return
    home = environment.address(order.config, order.worker).open()
    if home is None:
        return
    with home.lock(LOCK_SECONDS):
        found, files = home.found(), home.side_files
        if found.secondary or found.incarnation != order.incarnation or found.fence > order.fence:
            return
        # One of a batch that is under way may be taken back.
        waiting = [one for one in deltas_in(files) if one.until <= min(found.version, order.until)]
        chosen = leading_from(waiting, order.version)
        deltas = tuple((one.since, one.until, files.read(one.file) or b"") for one in chosen)
        kept = _kept(home, order.version, chosen[-1].until) if chosen else {}
    yield number, Shipment(incarnation=order.incarnation, deltas=deltas, kept=kept, kept_from=found.kept_from)


def _kept(home: StateStorage, version: int, until: int) -> dict[str, bytes]:
    """The reports and outputs of the batches after ``version``. What a sink gets is needed of the last one alone."""
    files = home.side_files
    for_sinks = {output_name(Batch(batch), port) for batch in range(version, until) for port in (ROWS, WINDOWS)}
    found: dict[str, bytes] = {}
    for name in files.names():
        batch = kept_batch(name)
        if batch is not None and version < batch <= until and name not in for_sinks:
            found[name] = files.read(name) or b""
    return found


def put_checkpoints(
    orders: Sequence[ShipOrder], environment: TaskEnvironment, number: int, shipments: Sequence[Shipment]
) -> Iterator[tuple[str, ShipAnswer]]:
    """Brings the secondary of an order to the version of what was sent to it, in one transaction."""
    order = orders[number]
    if environment.host != order.target or not shipments:
        return
    (shipment,) = shipments
    try:
        version = _put(environment, order, shipment)
    except (NotTaken, AfsparkError) as error:
        yield order.config.operator_name, ShipAnswer(order.worker, order.version, refused=str(error))
        return
    size = sum(len(data) for _, _, data in shipment.deltas) + sum(map(len, shipment.kept.values()))
    yield order.config.operator_name, ShipAnswer(order.worker, version, bytes=size)


def _put(environment: TaskEnvironment, order: ShipOrder, shipment: Shipment) -> int:
    home = environment.address(order.config, order.worker).open()
    if home is None:
        raise NotTaken("has lost its state")
    with home.lock(LOCK_SECONDS):
        _refuse_if_other(home.found(), order, shipment)
        if not shipment.deltas:
            raise NotTaken("lacks a checkpoint that its primary has not kept")
        home.raise_fence(order.fence)
        window, specs = order.config.window, cloudpickle.loads(order.config.pristine).states()
        panes = home.attach("panes", lambda columns: PaneStates.under(window, columns, specs))
        if home.found().marked:
            panes.rollback()
            home.clear_mark()
        version, needed_from = _apply(home, panes, shipment, environment.host)
        if needed_from is not None:
            panes.drop_below(needed_from)
        return version


def _refuse_if_other(found: Present, order: ShipOrder, shipment: Shipment) -> None:
    if found.version == RESTORING:
        raise NotTaken("is not whole")
    if not found.secondary or found.fence > order.fence:
        raise NotTaken("is a secondary no more")
    if {found.incarnation, shipment.incarnation} != {order.incarnation}:
        raise NotTaken("follows another incarnation")


def _apply(home: StateStorage, panes: PaneStates, shipment: Shipment, host: str) -> tuple[int, PaneNumber | None]:
    """The version that the state has now, and the first pane that it needs; None if it has no panes."""
    version: int = home.found().version
    needed_from: PaneNumber | None = None
    panes.begin()
    home.begin(Batch(version + 1), shipment.kept_from)
    try:
        for since, until, data in shipment.deltas:
            if until > version:
                needed_from = _overwrite(panes, Delta(until, since), version, data)
                version = until
        for _, _, state in panes.named():
            state.update_drift()
        for name, data in shipment.kept.items():
            home.side_files.write(name, _as_own(name, data, host))
    except BaseException:
        panes.rollback()
        home.clear_mark()
        raise
    home.advance(Batch(version), shipment.kept_from)
    panes.end()
    drop_queued(home.side_files, version)
    return version, needed_from


def _overwrite(panes: PaneStates, delta: Delta, version: int, data: bytes) -> PaneNumber | None:
    """The first pane that is needed after the checkpoint, as its primary has noted."""
    if not delta.fits(version):
        raise NotTaken(f"is at batch {version}, and a checkpoint begins at {delta.since}")
    try:
        sealed = unseal(data)
    except (CorruptObject, ForeignObject) as error:
        raise NotTaken(f"has got a damaged checkpoint ({error})") from error
    for label, image in sealed.images.items():
        if isinstance(label, StateLabel):
            if panes.fading is not None and not panes.fading.takes(image):
                raise NotTaken("counts in other units")
            panes.of(label.pane)[label.state].overwrite(image)
    first: PaneNumber | None = sealed.meta.get(NEEDED_FROM)
    return first


def _as_own(name: str, data: bytes, host: str) -> bytes:
    """A report as the secondary would have made it: it has written no backups."""
    batch = kept_batch(name)
    if batch is None or name != report_name(batch):
        return data
    report = json.loads(data)
    report |= {"host": host, "backups": [], "pending": [], "restored": None, "damaged": []}
    report["plan"] = report["plan"] | {"covers": False}
    return json.dumps(report).encode()
