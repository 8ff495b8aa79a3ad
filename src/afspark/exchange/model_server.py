"""A model server: keeps one shard of a model while workers train it, in a process of its own.

It is no place where anything is safe. What lasts is the state of the global operator, which takes the result of a batch
from here when the batch ends; a server that is lost is given that state again, and the batch is begun anew.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from afspark.exchange.exchange_messages import (
    ABANDON,
    BEGIN,
    CELLS,
    EVENTS,
    RESULT,
    Answered,
    Begin,
    CheckIn,
    Opened,
    Said,
    open_cells,
    pack_cells,
)
from afspark.exchange.exchange_ticket import RoundKey
from afspark.exchange.rounds import Push, Rounds
from afspark.model.consistency import consistency_of
from afspark.model.kernels.digest_kernels import digest_bytes
from afspark.model.kernels.plain_arrays import Array
from afspark.model.training import Cells, StepFacts

LOG = logging.getLogger("afspark")

#: How long a thread sleeps at most before it looks whether its caller is still there.
_GLANCE_SECONDS = 0.5


class _Refused(Exception):
    """A batch cannot go on; the text says why."""


@dataclass
class _Batch:
    """The rounds of a batch, and who waits for them."""

    begun: Begin
    rounds: Rounds
    changed: threading.Condition = field(default_factory=threading.Condition)
    #: (worker, process, step, asked, answered, version): when models were pulled
    pulls: list[tuple[int, int, int, float, float, int]] = field(default_factory=list)
    #: why it cannot go on
    refused: str = ""

    def abandon(self, why: str) -> None:
        with self.changed:
            self.refused = self.refused or why
            self.changed.notify_all()


class ModelServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves one shard of ``size`` cells."""

    def __init__(self, size: int, *, host: str, secret: str) -> None:
        super().__init__(f"grpc://{host}:0")
        self.size, self._host, self._secret = size, host, secret
        self._lock = threading.Lock()
        self._batches: dict[int, _Batch] = {}
        #: models by the name of their version
        self._models: dict[str, Array] = {}
        self._actions = {BEGIN: self._begin, ABANDON: self._abandon, RESULT: self._result, EVENTS: self._events}

    @property
    def address(self) -> str:
        return f"grpc://{self._host}:{self.port}"

    # --- workers --------------------------------------------------------------------------------------------

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """One worker in one batch: it is given the model, and for what it has learned in each step a newer one."""
        check_in = CheckIn.from_bytes(descriptor.command)
        self._admit(check_in.secret)
        writer.begin(CELLS)
        with self._telling_refusals(writer):
            batch = self._batch(check_in)
            with batch.changed:
                batch.rounds.check_in(check_in.worker)
                batch.changed.notify_all()
            held = self._answer(context, writer, batch, check_in, 0, None, "")
            for chunk in reader:
                said = Said.from_bytes(chunk.app_metadata)
                with batch.changed:
                    became = self._take(batch, check_in, said, chunk.data)
                    batch.changed.notify_all()
                if said.steps is not None:
                    writer.write_metadata(Answered(version=held).to_bytes())
                    return
                held = self._answer(context, writer, batch, check_in, said.step + 1, held, became)

    def _take(self, batch: _Batch, check_in: CheckIn, said: Said, row: pa.RecordBatch | None) -> str:
        try:
            if said.steps is not None:
                batch.rounds.finish(check_in.worker, said.steps)
                return ""
            assert row is not None
            cells = open_cells(row)
            self._check(cells)
            facts = StepFacts(items=said.items, correct=said.correct, loss=said.loss)
            digest = _digest(cells, facts)
            push = Push(worker=check_in.worker, step=said.step, facts=facts, cells=cells, digest=digest)
            return batch.rounds.push(push)
        except ValueError as error:
            raise _Refused(str(error)) from None

    def _check(self, cells: Cells) -> None:
        if len(cells.index) and int(cells.index.max()) >= self.size:
            raise ValueError(f"cell {int(cells.index.max())} of a shard of {self.size}")

    def _answer(
        self, context: Any, writer: Any, batch: _Batch, check_in: CheckIn, step: int, held: int | None, became: str
    ) -> int:
        """Waits until the worker may begin ``step``, and gives it what its model lacks; the version it has then."""
        asked = time.time()
        deadline = time.monotonic() + batch.begun.seconds
        with batch.changed:
            while not batch.rounds.may_begin(check_in.worker, step):
                if batch.refused or context.is_cancelled():
                    raise _Refused(batch.refused or "the worker has gone")
                left = deadline - time.monotonic()
                if left <= 0:
                    batch.refused = (
                        f"worker {check_in.worker} waited {batch.begun.seconds:g} s in step {step} for "
                        f"{', '.join(map(str, batch.rounds.waits_for(step)))}"
                    )
                    batch.changed.notify_all()
                    raise _Refused(batch.refused)
                batch.changed.wait(min(left, _GLANCE_SECONDS))
            version = batch.rounds.version_for(step)
            # A push that differs from the first one of its step was made upon the same model, and leaves it behind.
            cells = batch.rounds.versions.changes(held, max(version, held or 0))
            version = max(version, held or 0)
            batch.pulls.append((check_in.worker, check_in.process, step, asked, time.time(), version))
        row = pack_cells(cells, self.size)
        writer.write_with_metadata(row, Answered(version=version, became=became).to_bytes())
        return version

    @contextlib.contextmanager
    def _telling_refusals(self, writer: Any) -> Iterator[None]:
        try:
            yield
        except _Refused as refusal:
            writer.write_metadata(Answered(refused=str(refusal)).to_bytes())

    def _batch(self, key: RoundKey) -> _Batch:
        with self._lock:
            found = self._batches.get(key.batch)
        if found is None or found.begun.attempt != key.attempt:
            raise _Refused(f"the rounds of batch {key.batch} are not open in attempt {key.attempt}")
        return found

    # --- the driver and the global operator -----------------------------------------------------------------

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """A model, as the global operator has it."""
        told = json.loads(descriptor.command)
        self._admit(told["secret"])
        model = np.zeros(self.size)
        for chunk in reader:
            cells = open_cells(chunk.data)
            self._check(cells)
            model[cells.index] = cells.values
        with self._lock:
            self._models[told["base"]] = model

    def do_get(self, context: Any, ticket: Any) -> Any:
        """What a batch has changed."""
        told = json.loads(ticket.ticket)
        self._admit(told.pop("secret"))
        batch = self._batch(RoundKey(**told))
        with batch.changed:
            versions = batch.rounds.versions
            row = pack_cells(versions.changes(0, versions.newest), self.size)
        return flight.RecordBatchStream(pa.Table.from_batches([row]))

    def do_action(self, context: Any, action: Any) -> list[Any]:
        told = json.loads(action.body.to_pybytes())
        self._admit(told.pop("secret"))
        answer = self._actions[action.type](told)
        return [flight.Result(pa.py_buffer(json.dumps(answer).encode()))]

    def _begin(self, told: dict[str, Any]) -> dict[str, Any]:
        begun = Begin(**told)
        with self._lock:
            found = self._batches.get(begun.batch)
            if found is not None and found.begun.attempt == begun.attempt:
                return {"is": Opened.ABANDONED if found.refused else Opened.OPEN}
            if not begun.base:
                self._models[begun.base] = np.zeros(self.size)
            if begun.base not in self._models:
                return {"is": Opened.LACKS_BASE}
            if found is not None:
                found.abandon("it was begun again")
            consistency = consistency_of(begun.consistency)
            rounds = Rounds(self._models[begun.base], begun.workers, consistency, begun.iteration)
            # Rounds of earlier batches are over: what came of them is in the state of the global operator.
            self._batches = {begun.batch: _Batch(begun, rounds)}
        return {"is": Opened.OPEN}

    def _abandon(self, told: dict[str, Any]) -> dict[str, Any]:
        why = told.pop("why")
        with contextlib.suppress(_Refused):
            self._batch(RoundKey(**told)).abandon(why)
        return {}

    def _result(self, told: dict[str, Any]) -> dict[str, Any]:
        """A batch is over: its model is the base ``becomes`` from now on. Its merges."""
        becomes = told.pop("becomes")
        batch = self._batch(RoundKey(**told))
        with batch.changed:
            rounds = batch.rounds
            if not rounds.is_over:
                return {"open": True}
            model = rounds.versions.model.copy()
            answer = {"merges": [[one.norm, asdict(one.facts)] for one in rounds.merges()]}
        with self._lock:
            self._models = {batch.begun.base: self._models[batch.begun.base], becomes: model}
        return answer

    def _events(self, told: dict[str, Any]) -> dict[str, Any]:
        batch = self._batch(RoundKey(**told))
        with batch.changed:
            return {"pulls": [list(one) for one in batch.pulls]}

    def _admit(self, secret: str) -> None:
        if not hmac.compare_digest(secret, self._secret):
            raise flight.FlightUnauthenticatedError("This model server serves the workers of one query.")


def _digest(cells: Cells, facts: StepFacts) -> str:
    parts = [digest_bytes(np.ascontiguousarray(part).view(np.uint8)) for part in (cells.index, cells.values)]
    return f"{parts}{facts}"
