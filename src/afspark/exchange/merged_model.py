"""The way of the global operator to what a batch has made of its shard of a model."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import ExchangeFailed
from afspark.exchange.exchange_ticket import ExchangeTicket
from afspark.model.training import Cells, Merge, StepFacts


class MergedShard:
    """What the batch of a ticket has made of one shard."""

    def __init__(self, ticket: ExchangeTicket, shard: int) -> None:
        self._ticket, self._calls = ticket, ServerCalls(ticket.addresses[shard], ticket.secret)

    def changes(self) -> Cells:
        """The cells that are others than before the batch, numbered within the shard."""
        return self._calls.changes(self._ticket.key)

    def merges(self) -> list[Merge]:
        """All merges of the batch. The server calls the model by its new name from now on."""
        found = self._result
        return [
            Merge(norm=norm, facts=StepFacts(**facts), at=at, by=(worker, step))
            for (norm, facts, at), (worker, step) in zip(found["merges"], found["by"], strict=True)
        ]

    def began(self) -> float:
        """When the rounds were opened."""
        return float(self._result["began"])

    @cached_property
    def _result(self) -> dict[str, Any]:
        found = self._calls.result(self._ticket.key, becomes=self._ticket.becomes)
        if found.get("open"):
            raise ExchangeFailed("Workers are still training.", remedy="The batch is begun again by itself.")
        return found

    def close(self) -> None:
        self._calls.close()
