"""The worker's side of an exchange: a stream to every shard of the model, open as long as the batch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from afspark.exchange.exchange_messages import (
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
from afspark.model.training import Cells, StepFacts


class ModelExchange:
    """One worker in one batch: `pull` first, then `push` for every step, then `finish`."""

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

    def pull(self) -> Cells:
        """The whole model that the batch begins with. Waits until everybody is there."""
        descriptor = flight.FlightDescriptor.for_command(self._hello.to_bytes())
        with self._translated():
            for address in self._ticket.addresses:
                client = flight.connect(address)
                writer, reader = client.do_exchange(descriptor)
                writer.begin(CELLS)
                self._streams.append((client, writer, reader))
        return self._answers()

    def push(self, cells: Cells, facts: StepFacts) -> Cells:
        """Gives away what was learned in a step; the cells of the model that are others by now, with their values."""
        said = Said(step=self._step, items=facts.items, correct=facts.correct, loss=facts.loss).to_bytes()
        with self._translated():
            for (_, writer, _), part, size in zip(self._streams, self._divided(cells), self._sizes(), strict=True):
                writer.write_with_metadata(pack_cells(part, size), said)
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
        for client, writer, _ in self._streams:
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.close()
            client.close()
        self._streams = []

    def _answers(self) -> Cells:
        parts = []
        with self._translated():
            for (_, _, reader), first in zip(self._streams, self._ticket.bounds, strict=False):
                chunk = reader.read_chunk()
                _heard(chunk)
                cells = open_cells(chunk.data)
                parts.append(Cells(cells.index + np.uint32(first) if first else cells.index, cells.values))
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

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, StopIteration) as error:
            self.close()
            raise ExchangeFailed(
                f"The model server of batch {self._hello.batch} is not there: {first_line(error)}",
                remedy="The batch is begun again by itself.",
            ) from error
        except BaseException:
            self.close()
            raise


def _heard(chunk: Any) -> Answered:
    answered = Answered.from_bytes(chunk.app_metadata)
    if answered.refused:
        raise ExchangeFailed(
            f"{REFUSED}: {answered.refused}.", remedy="It is begun again by itself.", why=answered.refused
        )
    return answered
