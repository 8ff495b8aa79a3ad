"""What a step costs a worker besides learning: a push to a model server in a process of its own, a merge, and a pull."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from typing import Any

import numpy as np

from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import Begin
from afspark.exchange.exchange_ticket import ExchangeTicket, RoundKey
from afspark.exchange.model_client import ModelExchange
from afspark.exchange.server_process import ServerProcess
from afspark.model.training import Cells, StepFacts

#: Cells of a push, of a model of a million.
CELLS = (1, 30, 1_000, 10_000, 100_000, 1_000_000)
#: A cell on its way: its number and its value.
CELL_BYTES = 12
STEPS, WARM_STEPS = 30, 5
_SECRET = "secret" * 6


def exchange_cost() -> dict[str, Any]:
    """Milliseconds of a step by the cells that it pushes, and as a line: of any step, and of a pushed megabyte."""
    size = max(CELLS) + 1
    with closing(ServerProcess(size, host="127.0.0.1", secret=_SECRET)) as server:
        measured = {cells: _step_milliseconds(server.address, size, batch, cells) for batch, cells in enumerate(CELLS)}
    large = max(CELLS)
    return {
        "steps": {f"{cells}": milliseconds for cells, milliseconds in measured.items()},
        "step_ms": measured[min(CELLS)],
        "megabyte_ms": (measured[large] - measured[min(CELLS)]) / (large * CELL_BYTES / 1e6),
    }


def _step_milliseconds(address: str, size: int, batch: int, cells: int) -> float:
    begin = Begin(
        batch=batch,
        attempt=1,
        base="",
        workers=[0],
        incarnations=[0],
        consistency="bsp",
        seconds=60.0,
    )
    with closing(ServerCalls(address, _SECRET)) as calls:
        calls.begin(begin)
    key = RoundKey(batch=batch, attempt=1)
    ticket = ExchangeTicket(addresses=(address,), bounds=(0, size), key=key, secret=_SECRET)
    chance = np.random.default_rng(1)
    index = np.sort(chance.choice(size, cells, replace=False)).astype(np.uint32)
    with closing(ModelExchange(ticket, worker=0, incarnation=0)) as exchange:
        exchange.pull()
        taken = []
        for _ in range(STEPS):
            change = Cells(index, chance.normal(size=cells))
            started = time.perf_counter()
            exchange.push(change, StepFacts(items=1))
            taken.append(time.perf_counter() - started)
        exchange.finish()
    return 1e3 * statistics.median(taken[WARM_STEPS:])
