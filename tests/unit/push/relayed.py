"""Two operators read pushed items through a relay; the driver, and with it the receiver, is killed while items wait.

``python -m tests.unit.push.relayed FOLDER`` prints what is told then, as JSON. A process of its own, because what
Flight leaves in a process does not survive a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

import afspark as af
from afspark.api.query import Query
from afspark.graph.graph import Graph
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import rewritten
from afspark.sources import Pushed
from afspark.task.warmup import warm_up
from tests.soak.zygote import Zygote, children_of
from tests.unit.runtime.sparkless import Hosts, Rig

SCHEMA = pa.schema([("key", pa.int64())])
LIMIT = 4_000
BEFORE, LOST, AFTER = 200, 300, 100


class Count(af.Operator):
    """Adds ``alpha`` for every item of a key."""

    key = ("key",)

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="int64", value="int64", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("key"), int(self.alpha or 0))


def pipeline(port: int) -> Pipeline:
    source = Pushed.of(SCHEMA, lanes=2, tick_seconds=0.3, port=port)
    nodes = tuple(
        Node(
            name=name,
            operator=Count(alpha),
            inputs=(Edge(SOURCE),),
            workers=workers,
            keyed=True,
            tolerance=af.Approximate(0, items=LIMIT, unacked=LIMIT),
        )
        for name, alpha, workers in (("ones", 1.0, 2), ("threes", 3.0, 1))
    )
    return rewritten(Graph(sources={SOURCE: source}, nodes=nodes))


class Process:
    """A child that answers one line for every line it is given."""

    def __init__(self, work: Callable[[Callable[[], str], Callable[[Any], None]], None]) -> None:
        reads, self._asks = os.pipe()
        self._hears, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._asks)
            lines, out = os.fdopen(reads), os.fdopen(answers, "w")

            def hear() -> str:
                # Nothing more is said by a parent that is gone.
                return lines.readline().strip() or os._exit(0)

            try:
                work(hear, lambda answer: print(json.dumps(answer), file=out, flush=True))
            finally:
                traceback.print_exc()
                os._exit(1)
        os.close(answers)
        self._answers = os.fdopen(self._hears)

    def ask(self, line: object) -> Any:
        os.write(self._asks, f"{line}\n".encode())
        answer = self._answers.readline()
        assert answer, "the process has ended"
        return json.loads(answer)

    def kill(self, *others: int) -> None:
        for pid in (self.pid, *others):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def produce(hear: Callable[[], str], say: Callable[[Any], None]) -> NoReturn:
    """Sends as many items as it is told to; answers when all are acknowledged."""
    from afspark.push.producer.producer import Producer

    with Producer(hear(), "sensor", SCHEMA, batch_rows=10, give_up=60.0) as producer:
        say(None)
        while True:
            for start in range(0, int(hear()), 10):
                producer.send(pa.record_batch({"key": np.arange(start, start + 10) % 7}, schema=SCHEMA))
            producer.flush(60.0)
            say(None)


def drive(folder: Path, port: int) -> Callable[[Callable[[], str], Callable[[Any], None]], None]:
    def work(hear: Callable[[], str], say: Callable[[Any], None]) -> NoReturn:
        zygote = Zygote()
        rig = Rig(folder, Hosts({"a": 3, "b": 3}, processes=zygote.run), pipeline=pipeline(port))
        engine = rig.start()
        engine.receivers.open()
        query = Query(None, engine)  # type: ignore[arg-type]
        rows: dict[str, dict[str, float]] = {}

        def deliver(batch: int) -> None:
            # What the column ``bound`` would say.
            rows[str(batch)] = query.bounds("ones")

        hear()
        say({"address": engine.receivers.addresses()[0], "zygote": zygote.pid})
        while True:
            if hear() == "tick":
                rig.go(1, deliver)
                say(engine.items)
            else:
                say(facts(query, rig) | {"delivered": rows})

    return work


def facts(query: Query, rig: Rig) -> dict[str, Any]:
    found = af.inspect(rig.checkpoint, segments=rig.segments)
    return {
        "counts": {name: sum(rig.counts(name).values()) for name in ("ones", "threes")},
        "bounds": {name: query.bounds(name) for name in ("ones", "threes")},
        "item_losses": [[loss["operator"], loss["items"]] for loss in query.item_losses()],
        "operators": sorted({entry["operator"] for entry in query.tolerance()}),
        "why": query.tolerance()[0]["why"],
        "inspected": {one.name: [dict(one.bounds or {}), one.lost_items] for one in found.operators},
        "plan": [plan.items for plan in query._engine.receivers._hosts[SOURCE].plans],
    }


def main(folder: Path) -> None:
    warm_up()
    producer = Process(produce)
    driver = Process(drive(folder, 0))
    place = driver.ask("where")
    producer.ask(place["address"])
    producer.ask(BEFORE)
    while driver.ask("tick") < BEFORE:
        continue
    producer.ask(LOST)
    driver.kill(place["zygote"], *children_of(place["zygote"]))
    driver = Process(drive(folder, int(place["address"].rpartition(":")[2])))
    zygote = driver.ask("where")["zygote"]
    producer.ask(AFTER)
    deadline = time.monotonic() + 60
    while driver.ask("tick") < BEFORE + AFTER:
        assert time.monotonic() < deadline
    sys.stdout.write(json.dumps(driver.ask("tell")))
    driver.kill(zygote)
    producer.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
