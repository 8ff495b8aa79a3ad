"""A task's way to the model that its operator trains with others, or has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import ExchangeFailed, Leave
from afspark.exchange.exchange_ticket import ExchangeTicket
from afspark.exchange.merged_model import MergedShard
from afspark.exchange.model_client import ModelExchange
from afspark.exchange.rehearsal import Rehearsal
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
        exchange = _worker_exchange(request, ticket)
    with contextlib.closing(exchange):
        yield exchange


def rehearsal_of(request: TaskRequest, operator: Operator) -> Rehearsal | None:
    """What the operator is given instead while parts of its items are tried; None if all it does can be undone."""
    ticket = request.exchange
    if ticket is None or operator.training is None:
        return None
    return Rehearsal(partial(_worker_exchange, request, ticket), ticket.bounds[-1])


def _worker_exchange(request: TaskRequest, ticket: ExchangeTicket) -> ModelExchange:
    return ModelExchange(ticket, worker=request.worker, incarnation=request.incarnation)


def leave_exchange(request: TaskRequest, why: str) -> None:
    """Has nobody wait for this worker any longer."""
    if request.exchange is None or not request.apply:
        return
    leave = Leave(**request.exchange.key.to_json(), worker=request.worker, incarnation=request.incarnation, why=why)
    for address in request.exchange.addresses:
        # Where there is no server, nobody waits.
        with (
            contextlib.suppress(ExchangeFailed),
            contextlib.closing(ServerCalls(address, request.exchange.secret)) as calls,
        ):
            calls.abandon(leave)
