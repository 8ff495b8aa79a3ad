"""What the driver and the global operator ask of a model server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.exchange.exchange_messages import (
    ABANDON,
    ANSWER_SECONDS,
    BEGIN,
    CELLS,
    END,
    EVENTS,
    PING,
    PROMPT_SECONDS,
    RESULT,
    Begin,
    ExchangeFailed,
    Leave,
    Opened,
    first_line,
    open_cells,
    pack_cells,
)
from afspark.exchange.exchange_ticket import RoundKey
from afspark.model.training import Cells


class ServerCalls:
    """Calls to the server at ``address``; `ExchangeFailed` if it is not there, or does not answer."""

    def __init__(self, address: str, secret: str) -> None:
        self.address, self._secret = address, secret
        with self._translated():
            self._client = flight.connect(address)

    def begin(self, begin: Begin) -> Opened:
        """Opens the rounds of a batch, unless they are open."""
        return Opened(self._act(BEGIN, asdict(begin))["is"])

    def load(self, base: str, cells: Cells, size: int) -> None:
        """Gives it a model."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"base": base, "secret": self._secret}).encode())
        with self._translated():
            writer, _ = self._client.do_put(descriptor, CELLS, self._options())
            writer.write_batch(pack_cells(cells, size))
            writer.close()

    def result(self, key: RoundKey, *, becomes: str) -> dict[str, Any]:
        """What the steps of a batch told; the model that it left behind can be begun with under that name."""
        return self._act(RESULT, {**asdict(key), "becomes": becomes})

    def changes(self, key: RoundKey) -> Cells:
        """What a batch has changed."""
        ticket = flight.Ticket(json.dumps({**asdict(key), "secret": self._secret}).encode())
        with self._translated():
            (row,) = self._client.do_get(ticket, self._options()).read_all().to_batches()
        return open_cells(row)

    def abandon(self, leave: Leave) -> None:
        """The rounds cannot be completed without a worker: nobody needs to wait any longer."""
        self._act(ABANDON, asdict(leave), PROMPT_SECONDS)

    def events(self, key: RoundKey) -> dict[str, Any]:
        """When steps were pushed and models pulled in a batch, by whom."""
        return self._act(EVENTS, asdict(key), PROMPT_SECONDS)

    def ping(self) -> None:
        """It is there, if this comes back."""
        self._act(PING, {}, PROMPT_SECONDS)

    def end(self) -> None:
        """It is not needed any more."""
        self._act(END, {}, PROMPT_SECONDS)

    def close(self) -> None:
        self._client.close()

    def _act(self, kind: str, told: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        action = flight.Action(kind, json.dumps({**told, "secret": self._secret}).encode())
        with self._translated():
            (result,) = self._client.do_action(action, flight.FlightCallOptions(timeout=seconds))
        answer: dict[str, Any] = json.loads(result.body.to_pybytes())
        return answer

    def _options(self) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=ANSWER_SECONDS)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise ExchangeFailed(
                f"The model server at {self.address} is not there: {first_line(error)}",
                remedy="It is started again by itself.",
            ) from error
