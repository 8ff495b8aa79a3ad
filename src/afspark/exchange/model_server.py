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
    END,
    EVENTS,
    PING,
    RESULT,
    Answered,
    Begin,
    CheckIn,
    Leave,
    Opened,
    Said,
    open_cells,
    pack_cells,
)
from afspark.exchange.exchange_ticket import RoundKey
from afspark.exchange.rounds import Push, PushOutcome, Rounds
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
    began: float = field(default_factory=time.time)
    #: when each version after the first was made
    merged_at: list[float] = field(default_factory=list)
    #: (worker, process, step, taken): when steps were pushed
    pushes: list[tuple[int, int, int, float]] = field(default_factory=list)
    #: (worker, process, step, asked, answered, version): when models were pulled
    pulls: list[tuple[int, int, int, float, float, int]] = field(default_factory=list)
    #: why it cannot go on
    refused: str = ""

    def note_merges(self) -> None:
        """Gives versions that are new their time."""
        self.merged_at += [time.time()] * (self.rounds.versions.newest - len(self.merged_at))

    def admit(self, check_in: CheckIn) -> None:
        try:
            self.rounds.check_in(check_in.worker, check_in.incarnation)
        except ValueError as error:
            raise _Refused(str(error)) from None

    def hear(self, begun: Begin) -> None:
        """Workers that were lost since are others now."""
        with self.changed:
            for worker, incarnation in zip(begun.workers, begun.incarnations, strict=True):
                self.rounds.admit(worker, incarnation)

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
        self._calls, self._called = 0, time.monotonic()
        self._actions = {
            BEGIN: self._begin,
            ABANDON: self._abandon,
            RESULT: self._result,
            EVENTS: self._events,
            PING: lambda _: {},
            END: self._end,
        }

    @property
    def address(self) -> str:
        return f"grpc://{self._host}:{self.port}"

    @property
    def idle_seconds(self) -> float:
        """How long nobody has called; a worker calls as long as its batch."""
        with self._lock:
            return 0.0 if self._calls else time.monotonic() - self._called

    @contextlib.contextmanager
    def _called_by(self, secret: str) -> Iterator[None]:
        if not hmac.compare_digest(secret, self._secret):
            raise flight.FlightUnauthenticatedError("This model server serves the workers of one query.")
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls, self._called = self._calls - 1, time.monotonic()

    # --- workers --------------------------------------------------------------------------------------------

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """One worker in one batch: it is given the model, and for what it has learned in each step a newer one."""
        check_in = CheckIn.from_bytes(descriptor.command)
        with self._called_by(check_in.secret), self._telling_refusals(reader, writer):
            writer.begin(CELLS)
            batch = self._batch(check_in)
            with batch.changed:
                batch.admit(check_in)
                batch.changed.notify_all()
            held = self._answer(context, writer, batch, check_in, 0, None)
            for chunk in reader:
                said = Said.from_bytes(chunk.app_metadata)
                with batch.changed:
                    differs = self._take(batch, check_in, said, chunk.data) is PushOutcome.DIFFERS
                    batch.note_merges()
                    batch.changed.notify_all()
                if said.steps is not None:
                    writer.write_metadata(Answered(version=held).to_bytes())
                    return
                held = self._answer(context, writer, batch, check_in, said.step + 1, held, differs=differs)

    def _take(self, batch: _Batch, check_in: CheckIn, said: Said, row: pa.RecordBatch | None) -> PushOutcome | None:
        """What became of a push; None if the worker has come to its end."""
        try:
            if said.steps is not None:
                batch.rounds.finish(check_in.worker, said.steps, check_in.incarnation)
                return None
            assert row is not None
            cells = open_cells(row)
            self._check(cells)
            facts = StepFacts(items=said.items, correct=said.correct, loss=said.loss)
            digest = _digest(cells, facts)
            batch.pushes.append((check_in.worker, check_in.process, said.step, time.time()))
            push = Push(
                worker=check_in.worker,
                step=said.step,
                facts=facts,
                cells=cells,
                digest=digest,
                incarnation=check_in.incarnation,
            )
            return batch.rounds.push(push)
        except ValueError as error:
            raise _Refused(str(error)) from None

    def _check(self, cells: Cells) -> None:
        if len(cells.index) and int(cells.index.max()) >= self.size:
            raise ValueError(f"cell {int(cells.index.max())} of a shard of {self.size}")

    def _answer(
        self,
        context: Any,
        writer: Any,
        batch: _Batch,
        check_in: CheckIn,
        step: int,
        held: int | None,
        *,
        differs: bool = False,
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
                        f"worker {check_in.worker} waited {batch.begun.seconds:g} s in step {step} for worker "
                        f"{', '.join(map(str, batch.rounds.waits_for(step)))}; where steps take longer, give train() a"
                        " larger wait_seconds or a smaller iteration"
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
        writer.write_with_metadata(row, Answered(version=version, differs=differs).to_bytes())
        return version

    @contextlib.contextmanager
    def _telling_refusals(self, reader: Any, writer: Any) -> Iterator[None]:
        """A refused worker hears of it, and ends the stream; had it ended here while the worker writes, the last words
        would be lost.
        """
        try:
            yield
        except _Refused as refusal:
            writer.write_metadata(Answered(refused=str(refusal)).to_bytes())
            with contextlib.suppress(pa.ArrowException, OSError):
                for _ in reader:
                    pass

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
        with self._called_by(told["secret"]):
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
        with self._called_by(told.pop("secret")):
            batch = self._batch(RoundKey(**told))
            with batch.changed:
                row = pack_cells(batch.rounds.versions.changed(), self.size)
        return flight.RecordBatchStream(pa.Table.from_batches([row]))

    def do_action(self, context: Any, action: Any) -> list[Any]:
        told = json.loads(action.body.to_pybytes())
        with self._called_by(told.pop("secret")):
            answer = self._actions[action.type](told)
        return [flight.Result(pa.py_buffer(json.dumps(answer).encode()))]

    def _begin(self, told: dict[str, Any]) -> dict[str, Any]:
        begun = Begin(**told)
        with self._lock:
            found = self._batches.get(begun.batch)
            if found is not None and found.begun.attempt == begun.attempt:
                found.hear(begun)
                return {"is": Opened.ABANDONED if found.refused else Opened.OPEN}
            if not begun.base:
                self._models[begun.base] = np.zeros(self.size)
            if begun.base not in self._models:
                return {"is": Opened.LACKS_BASE}
            if found is not None:
                found.abandon("it was begun again")
            consistency = consistency_of(begun.consistency)
            rounds = Rounds(self._models[begun.base], begun.workers, consistency)
            # Rounds of earlier batches are over: what came of them is in the state of the global operator.
            opened = _Batch(begun, rounds)
            opened.hear(begun)
            self._batches = {begun.batch: opened}
        return {"is": Opened.OPEN}

    def _abandon(self, told: dict[str, Any]) -> dict[str, Any]:
        leave = Leave(**told)
        # Others do not depend on somebody whose place another one has taken.
        with contextlib.suppress(_Refused, ValueError):
            batch = self._batch(leave)
            with batch.changed:
                batch.rounds.admit(leave.worker, leave.incarnation)
            batch.abandon(leave.why)
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
            merges = list(zip(rounds.merges(), batch.merged_at, strict=True))
            answer = {
                "began": batch.began,
                "merges": [[one.norm, asdict(one.facts), at] for one, at in merges],
                "by": [one.by for one, _ in merges],
            }
        with self._lock:
            self._models = {batch.begun.base: self._models[batch.begun.base], becomes: model}
        return answer

    def _events(self, told: dict[str, Any]) -> dict[str, Any]:
        batch = self._batch(RoundKey(**told))
        with batch.changed:
            return {"pulls": [list(one) for one in batch.pulls], "pushes": [list(one) for one in batch.pushes]}

    def _end(self, told: dict[str, Any]) -> dict[str, Any]:
        # Not here: it waits for this call.
        threading.Thread(target=self.shutdown, daemon=True).start()
        return {}


def _digest(cells: Cells, facts: StepFacts) -> str:
    parts = [digest_bytes(np.ascontiguousarray(part).view(np.uint8)) for part in (cells.index, cells.values)]
    return f"{parts}{facts}"
