"""Gives back the memory that a query which has ended holds on hosts."""

from __future__ import annotations

from functools import partial

from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.configuring import operator_config
from afspark.protocol.operator_config import OperatorConfig
from afspark.task.task_environment import TaskEnvironment


def release_states(engine: Coordinator) -> None:
    """Removes the resident states of the query from all hosts that have an executor, whoever has left them there.

    Also those of earlier drivers, of which this one may have run no batch, and on hosts where no worker lives any more:
    one that was away may have come back with what it had. `AnotherDriver` if they are another one's by now.
    """
    engine.take_lease()
    node, store, epoch = engine.pipeline.nodes[0], engine.store, engine.log.epoch
    # What is removed is the query's as a whole: any of its operators will do.
    config = operator_config(node, engine.pipeline, engine.options, engine.identity, store=store, epoch=epoch)
    hosts = sorted(engine.cluster.slots_by_host())
    engine.cluster.try_on(dict(enumerate(hosts)), partial(_release, config))


def _release(config: OperatorConfig, environment: TaskEnvironment, _: int) -> tuple[()]:
    environment.release(config)
    return ()
