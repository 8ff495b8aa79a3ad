"""A task's way to the model that its operator trains with others, or has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import ExchangeFailed, Leave
from afspark.exchange.merged_model import MergedShard
from afspark.exchange.model_client import ModelExchange
from afspark.model.operator import Operator
from afspark.model.training import Exchange, MergedModel
from afspark.protocol.requests import TaskRequest


@contextlib.contextmanager
def exchange_of(request: TaskRequest, operator: Operator) -> Iterator[Exchange | MergedModel | None]:
    """What the operator is given for a batch."""
    ticket = request.exchange
    if ticket is None:
        yield None
        return
    exchange: ModelExchange | MergedShard
    if operator.training is None:
        exchange = MergedShard(ticket, request.worker)
    else:
        exchange = ModelExchange(ticket, worker=request.worker, incarnation=request.incarnation)
    with contextlib.closing(exchange):
        yield exchange


def leave_exchange(request: TaskRequest, why: str) -> None:
    """Has nobody wait for this worker any longer."""
    if request.exchange is None or not request.apply:
        return
    leave = Leave(**request.exchange.key.to_json(), worker=request.worker, incarnation=request.incarnation, why=why)
    for address in request.exchange.addresses:
        # Where there is no server, nobody waits.
        with contextlib.suppress(ExchangeFailed):
            ServerCalls(address, request.exchange.secret).abandon(leave)
