"""The worker's side of an exchange: a stream to every shard of the model, open as long as the batch."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from afspark.exchange.exchange_messages import (
    ANSWER_SECONDS,
    CELLS,
    REFUSED,
    Answered,
    CheckIn,
    ExchangeFailed,
    Said,
    first_line,
    open_cells,
    pack_cells,
)
from afspark.exchange.exchange_ticket import ExchangeTicket
from afspark.exchange.large_writes import BUFFERED_BYTES, write_within
from afspark.model.training import Cells, StepFacts

#: What a cell takes on its way, and how many bytes a second come across at least.
_CELL_BYTES, _BYTES_A_SECOND = 12, 10e6
#: How often it is looked whether an answer is overdue: a thread for each step would cost more than the look.
_LOOK_SECONDS = 0.5


class ModelExchange:
    """One worker in one batch: `pull` first, then `push` for every step, then `finish`.

    `ExchangeFailed` if a server is not there, or says nothing for longer than anybody has to wait: one that is stopped
    keeps its streams open.
    """

    def __init__(self, ticket: ExchangeTicket, *, worker: int, incarnation: int) -> None:
        self._ticket = ticket
        self._hello = CheckIn(
            batch=ticket.key.batch,
            attempt=ticket.key.attempt,
            worker=worker,
            incarnation=incarnation,
            process=os.getpid(),
            secret=ticket.secret,
        )
        self._step = 0
        self._streams: list[tuple[Any, Any, Any]] = []
        self._ended = threading.Event()
        #: when what is under way has taken too long
        self._until = math.inf
        #: no answer came in time
        self._silent = False
        #: steps of which an earlier try of this worker's has pushed something else
        self.differing = 0

    def pull(self) -> Cells:
        """The whole model that the batch begins with. Waits until everybody is there."""
        descriptor = flight.FlightDescriptor.for_command(self._hello.to_bytes())
        threading.Thread(target=_watch, args=(weakref.ref(self), self._ended), daemon=True).start()
        with self._translated():
            for address in self._ticket.addresses:
                client = flight.connect(address)
                writer, reader = client.do_exchange(descriptor)
                self._streams.append((client, writer, reader))
                writer.begin(CELLS)
            return self._answers()

    def push(self, cells: Cells, facts: StepFacts) -> Cells:
        """Gives away what was learned in a step; the cells of the model that are others by now, with their values."""
        said = Said(step=self._step, items=facts.items, correct=facts.correct, loss=facts.loss).to_bytes()
        rows = [pack_cells(part, size) for part, size in zip(self._divided(cells), self._sizes(), strict=True)]
        with self._translated():
            self._write(rows, said)
            self._step += 1
            return self._answers()

    def finish(self) -> int:
        """There are no further items; how many steps there were."""
        said = Said(step=self._step, steps=self._step).to_bytes()
        with self._translated():
            for _, writer, reader in self._streams:
                writer.write_metadata(said)
                _heard(reader.read_chunk())
        self.close()
        return self._step

    def close(self) -> None:
        with self._limited(ANSWER_SECONDS):
            for client, writer, _ in self._streams:
                with contextlib.suppress(pa.ArrowException, OSError):
                    writer.close()
                client.close()
        self._streams = []
        self._ended.set()

    def _write(self, rows: Sequence[pa.RecordBatch], said: bytes) -> None:
        streams = self._streams

        def write() -> None:
            for (_, writer, _), row in zip(streams, rows, strict=True):
                writer.write_with_metadata(row, said)

        if sum(row.nbytes for row in rows) <= BUFFERED_BYTES:
            write()
            return
        try:
            # What can be ended by cancelling it has ended before.
            write_within(self._patience + 4 * _LOOK_SECONDS, write)
        except TimeoutError:
            self._streams = []
            raise

    def _answers(self) -> Cells:
        parts, differing = [], False
        for (_, _, reader), first in zip(self._streams, self._ticket.bounds, strict=False):
            chunk = reader.read_chunk()
            differing |= _heard(chunk).differs
            cells = open_cells(chunk.data)
            parts.append(Cells(cells.index + np.uint32(first) if first else cells.index, cells.values))
        self.differing += differing
        if len(parts) == 1:
            return parts[0]
        return Cells(np.concatenate([one.index for one in parts]), np.concatenate([one.values for one in parts]))

    def _sizes(self) -> Sequence[int]:
        return [self._ticket.size(shard) for shard in range(len(self._streams))]

    def _divided(self, cells: Cells) -> Sequence[Cells]:
        """The cells of each shard, numbered within it."""
        if len(self._streams) == 1:
            return [cells]
        order = np.argsort(cells.index, kind="stable")
        index, values = cells.index[order], cells.values[order]
        cuts = np.searchsorted(index, np.asarray(self._ticket.bounds, np.int64))
        return [
            Cells(index[start:stop] - np.uint32(first), values[start:stop])
            for start, stop, first in zip(cuts, cuts[1:], self._ticket.bounds, strict=False)
        ]

    @property
    def _patience(self) -> float:
        """How long an answer takes at most: until others have come, and the model has come across."""
        return self._ticket.seconds + ANSWER_SECONDS + _CELL_BYTES * self._ticket.bounds[-1] / _BYTES_A_SECOND

    @contextlib.contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        """What waits within it fails when it has taken so long."""
        self._until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._until = math.inf

    def give_up_overdue(self) -> None:
        """Ends all streams if an answer is overdue, until somebody has noticed."""
        if time.monotonic() > self._until:
            self._silent = True
            for _, _, reader in list(self._streams):
                reader.cancel()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with self._limited(self._patience):
                yield
        except (pa.ArrowException, OSError, StopIteration) as error:
            self.close()
            why = (
                f"has said nothing for {self._patience:.0f} s."
                if self._silent
                else f"is not there: {first_line(error)}"
            )
            raise ExchangeFailed(
                f"The model server of batch {self._hello.batch} {why}", remedy="The batch is begun again by itself."
            ) from error
        except BaseException:
            self.close()
            raise


def _watch(exchange: weakref.ref[ModelExchange], ended: threading.Event) -> None:
    """Until an exchange has ended, or nobody has it any more."""
    while not ended.wait(_LOOK_SECONDS):
        found = exchange()
        if found is None:
            return
        found.give_up_overdue()
        del found


def _heard(chunk: Any) -> Answered:
    answered = Answered.from_bytes(chunk.app_metadata)
    if answered.refused:
        raise ExchangeFailed(
            f"{REFUSED}: {answered.refused}.", remedy="It is begun again by itself.", why=answered.refused
        )
    return answered
