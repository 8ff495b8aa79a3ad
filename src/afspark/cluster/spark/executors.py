"""What Spark's driver knows of its executors, and what it can be told to do with them.

Everything that reaches into the JVM behind a classic session to ask executors for a sign of life, to keep tasks from
them, and to have them replaced is in this file.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext


class Question:
    """A question on its way to an executor's JVM. It takes no task slot, and nobody waits for it."""

    def __init__(self, future: Any) -> None:
        self._future = future

    @property
    def is_over(self) -> bool:
        """Whether the executor has answered, or never will."""
        return bool(self._future.isCompleted())

    @property
    def is_answered(self) -> bool:
        """Whether one that is over was answered: not if the connection has closed, or Spark has waited for too long."""
        return bool(self._future.value().get().isSuccess())


class Executors:
    """The executors of one Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        jsc: Any = context._jsc
        self._sc, self._jvm = jsc.sc(), _jvm(context)
        self._store = self._sc.statusStore()
        # These classes name others in their methods that not every installation has, so they cannot be looked through
        # for a method as py4j does; a single method can be asked for.
        blocks = self._call("SparkEnv", "blockManager", "storage.BlockManager", self._sc.env())
        self._master = self._call("storage.BlockManager", "master", "storage.BlockManagerMaster", blocks)
        spark = self._jvm.org.apache.spark
        self._any = self._jvm.scala.reflect.ClassTag.Any()
        # The status of a block that does not exist is the least that an executor can be asked.
        status = getattr(spark.storage, "BlockManagerMessages$GetBlockStatus")
        self._message = status(spark.storage.BlockId.apply("broadcast_0"), False)
        self._endpoints: dict[str, Any] = {}
        self._hosts: dict[str, str] = {}

    @property
    def is_stopped(self) -> bool:
        return bool(self._sc.isStopped())

    def hosts(self) -> dict[str, str]:
        """The host of every executor that Spark counts on."""
        known = set(str(self._sc.schedulerBackend().getExecutorsWithRegistrationTs().keys().mkString(" ")).split())
        if not known <= self._hosts.keys():
            listed = self._store.executorList(True)
            for index in range(listed.size()):
                one = listed.apply(index)
                self._hosts[one.id()] = one.hostPort().rsplit(":", 1)[0]
        # One that has just registered is listed a moment later.
        self._hosts = {name: host for name, host in self._hosts.items() if name in known}
        return dict(self._hosts)

    def ask(self, executor: str) -> Question | None:
        """Asks for a sign of life; None if there is no way to ask this executor."""
        if executor not in self._endpoints:
            found = self._master.getExecutorEndpointRef(executor)
            if found.isEmpty():
                return None
            self._endpoints[executor] = found.get()
        return Question(self._endpoints[executor].ask(self._message, self._any))

    def forget(self, executor: str) -> None:
        self._endpoints.pop(executor, None)

    def withhold_tasks(self, executor: str) -> None:
        """Spark gives the executor no new tasks until `give_tasks`: those without a preferred host go elsewhere."""
        self._sc.schedulerBackend().executorsPendingLossReason().add(executor)

    def give_tasks(self, executor: str) -> None:
        backend = self._sc.schedulerBackend()
        backend.executorsPendingLossReason().remove(executor)
        backend.reviveOffers()

    def replace(self, executor: str, why: str) -> None:
        """Spark gives an executor up and asks for another one, as it does when heartbeats stay out for too long."""
        backend, scheduler = self._sc.schedulerBackend(), self._jvm.org.apache.spark.scheduler
        self._sc.killAndReplaceExecutor(executor)
        lost = scheduler.ExecutorProcessLost(why, self._jvm.scala.Option.empty(), True)
        message = getattr(scheduler.cluster, "CoarseGrainedClusterMessages$RemoveExecutor")
        backend.driverEndpoint().send(message(executor, lost))

    def used_by(self, tag: str) -> frozenset[str]:
        """Executors that run tasks of jobs with this tag, or keep what such tasks have sent."""
        found: set[str] = set()
        tracker = self._context.statusTracker()
        for job in self._sc.statusTracker().getJobIdsForTag(tag):
            known = tracker.getJobInfo(job)
            for stage in known.stageIds if known is not None else ():
                found |= self._used_by_stage(stage)
        return frozenset(found)

    def cancel(self, tag: str) -> None:
        """Ends the jobs with this tag. Their tasks are told to stop, and nobody waits until they have."""
        self._context.cancelJobsWithTag(tag)

    def _used_by_stage(self, stage: int) -> set[str]:
        try:
            attempt = self._store.lastStageAttempt(stage).attemptId()
            return set(str(self._store.executorSummary(stage, attempt).keys().mkString(" ")).split())
        except Py4JError:
            return set()  # nothing of it has begun

    def _call(self, owner: str, method: str, result: str, instance: Any) -> Any:
        named, invoke = self._jvm.java.lang.Class.forName, self._jvm.java.lang.invoke
        kind = invoke.MethodType.methodType(named(f"org.apache.spark.{result}"))
        handle = invoke.MethodHandles.publicLookup().findVirtual(named(f"org.apache.spark.{owner}"), method, kind)
        arguments = self._jvm.java.util.ArrayList()
        arguments.add(instance)
        return handle.invokeWithArguments(arguments)


def _jvm(context: SparkContext) -> Any:
    return context._jvm
