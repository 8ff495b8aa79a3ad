"""A running pipeline, as the user holds it: the habits of Spark's StreamingQuery, plus what only we know."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from afspark.api.accounts import Accounts
from afspark.api.arguments import check_tolerance
from afspark.api.frame_results import FrameResults, with_bounds
from afspark.api.raised import plain
from afspark.api.result_shares import current_shares
from afspark.api.savepoints import answer_requests, held_record, save
from afspark.api.stop_signals import stopped_by_signals
from afspark.api.told_batch import ToldBatch
from afspark.cluster.spark.foreign_errors import own_error
from afspark.cluster.spark.input_rows import tell_input_rows
from afspark.cluster.spark.spark_cluster import SparkCluster
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.batch_progress import BatchProgress, Totals
from afspark.coordinator.last_snapshot import committed_by_spark, take_last_snapshot
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.releasing import release_states
from afspark.coordinator.spark_copies import SparkCopies
from afspark.errors import AfsparkError, AnotherDriver, StoreError, UsageError
from afspark.model.operator import Share
from afspark.numbers import Batch
from afspark.policies import Tolerance
from afspark.sources.file_source import absolute
from afspark.store.savepoint import place_of

#: How many batches are remembered, as Spark does.
RECENT = 100

_GLANCE_SECONDS = 0.05

#: How long a stop waits for Spark to commit the batch that was at work.
_COMMIT_SECONDS = 10.0
#: How long a savepoint waits for the first commit record of a query.
_FIRST_RECORD_SECONDS = 60.0
#: How long the end of a batch waits until the query is known here.
_ATTACHED_SECONDS = 5.0
#: A query that is seen so often without anything to do is idle.
_IDLE_GLANCES = 10

Deliver = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Outlet:
    """A sink: which operator's output it takes, in which mode, and whether rows carry their bound."""

    operator: str
    mode: str
    deliver: Deliver
    bounds: bool = False


class Query(Accounts):
    """One run of a pipeline. Made by ``writeStream.start()``."""

    def __init__(
        self,
        cluster: SparkCluster,
        engine: Coordinator,
        outlets: Sequence[Outlet] = (),
        copies: SparkCopies | None = None,
    ) -> None:
        self._cluster, self._engine, self._outlets, self._copies = cluster, engine, outlets, copies
        self._results = FrameResults(cluster)
        self._query: StreamingQuery | None = None
        self._batch_lock = threading.Lock()
        self._batch_thread: int | None = None
        self._stopping = False
        self._flushes = True
        #: a batch was not run because the query was stopping, which Spark takes for a failure
        self._refused = False
        self._failure: BaseException | None = None
        self._watching: threading.Thread | None = None
        self._recent: deque[ToldBatch] = deque(maxlen=RECENT)
        self.totals = Totals()
        self._attached = threading.Event()
        #: what it reads and writes, for people
        self._places = ("", "")
        self._saved = False

    # --- Spark's habits -------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """A UUID, stable over restarts from the same checkpoint, which ``spark.streams.get`` knows while it runs."""
        return str(self._spark_query.id)

    @property
    def runId(self) -> str:
        """Another UUID with every start."""
        return str(self._spark_query.runId)

    @property
    def name(self) -> str | None:
        """What `queryName` has called it; None without that."""
        return self._spark_query.name

    @property
    def isActive(self) -> bool:
        """Whether it runs, as Spark says."""
        return self._spark_query.isActive

    @property
    def status(self) -> dict[str, Any]:
        """What Spark's query is doing: `message`, `isDataAvailable`, `isTriggerActive`."""
        return dict(self._spark_query.status)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """The last committed batch: the keys of Spark's progress, and items, bytes, backups, recoveries, thresholds."""
        return self._recent[-1].to_json() if self._recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The same of the last hundred batches, oldest first."""
        # Copied first, in one go: a batch may end meanwhile.
        return [progress.to_json() for progress in list(self._recent)]

    @property
    def spark_query(self) -> StreamingQuery:
        """The Structured Streaming query underneath."""
        return self._spark_query

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Waits until the query ends; raises what made it fail. With a timeout: whether it has ended.

        Ctrl-C and SIGTERM meanwhile stop the query as `stop` does, and then end the program, unless it has set a
        handler of its own.
        """
        with stopped_by_signals(self.stop):
            return self._awaited(timeout)

    def _awaited(self, timeout: float | None) -> bool:
        failed: StreamingQueryException | None = None
        try:
            ended = self._spark_query.awaitTermination(timeout)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            # Raised below: what a user's sink has raised does not come from this.
            failed = error
        if failed is not None:
            self._await_end()
            self.raise_failure()
            if self._stopping:
                return True
            raise plain(failed)
        if timeout is None or ended:
            self._await_end()
            self.raise_failure()
        return True if timeout is None else bool(ended)

    def processAllAvailable(self) -> None:
        """Waits until everything that is in the source now has been processed; signals as in `awaitTermination`."""
        failed: StreamingQueryException | None = None
        with stopped_by_signals(self.stop):
            try:
                self._spark_query.processAllAvailable()
            except StreamingQueryException as error:
                failed = error
            if failed is not None:
                self.raise_failure()
                raise plain(failed)

    def stop(self, *, flush: bool = True) -> None:
        """Lets the batch at work end, makes durable what is not, and stops.

        A start on the same hosts finds the state resident; one on other hosts has lost nothing, and no failure is
        counted, except under `Nothing`. What takes longer than ``flushSeconds`` is given up: a warning says so, and
        what is lost then counts as after a failure. ``flush=False`` does without, for whoever wants out at once.
        """
        self._refuse_inside_a_batch()
        self._stopping, self._flushes = True, self._flushes and flush
        with self._at_rest():
            self._await_commit()
            self._spark_query.stop()
        self._await_end()

    def _await_commit(self) -> None:
        """Waits until Spark has committed the batch that was at work: stopped before that, it would run it again.

        Spark does so within moments of the call that has applied the batch, if nothing is wrong with it.
        """
        give_up = time.monotonic() + _COMMIT_SECONDS
        with suppress(StoreError):
            while self._awaits_commit() and time.monotonic() < give_up:
                time.sleep(_GLANCE_SECONDS)

    def _awaits_commit(self) -> bool:
        return self._engine.committed >= 0 and self._spark_query.isActive and not committed_by_spark(self._engine)

    def exception(self) -> BaseException | None:
        """What made the query fail; a batch that Spark began while the query was stopped is no failure."""
        if self._failure is not None or self._refused:
            return self._failure
        found = self._spark_query.exception()
        return None if found is None else own_error(found) or found

    # --- ours -----------------------------------------------------------------------------------------------

    @property
    def ended_well(self) -> bool:
        """Whether it has ended without a failure, and all that its workers had is durable."""
        return self._saved

    @property
    def resumed(self) -> bool:
        """Whether this start goes on with a stream that an earlier one has begun."""
        return self._engine.resumed

    def results(self, operator: str | None = None) -> DataFrame:
        """An operator's results as of the last committed batch, merged over all workers; default: the last one's.

        The DataFrame reads resident state when it runs: use it before the next batch, or after the end. With
        windows: what is still open.
        """
        with self._at_rest():
            self._engine.ready()
            return self._results.current(self._engine.operator(operator))

    def shares(self, operator: str | None = None) -> list[Share]:
        """What ``Operator.results`` is made from: every worker's cells as of the last committed batch.

        Collected in the driver; default: the last operator's.
        """
        with self._at_rest():
            self._engine.ready()
            return current_shares(self._cluster, self._engine.operator(operator))

    def set_tolerance(self, operator: str | None, tolerance: Tolerance) -> None:
        """Has all workers of an operator (None: the last one) protected by ``tolerance`` from now on, while they run.

        One of the six schemes, or `BarrierSnapshot`. The new protection stands before the old one goes, so that it
        takes a few batches; `protections` says how far it is. It is kept over restarts, as long as the program has the
        same tolerance. `UsageError` if the operator cannot change to it, or `Adaptive` chooses for it.
        """
        check_tolerance(tolerance)
        with self._at_rest():
            self._engine.ready()
            self._engine.operator(operator).want(tolerance)

    def end(self) -> None:
        """Ends the stream: all windows close, every operator is told, and no batch can follow.

        Call it after the query has stopped or terminated. What the closing of windows sends goes to the sinks.
        """
        with self._at_rest():
            self._refuse_while_it_runs()
            for progress in self._engine.end(self._hand_on):
                self._note(progress)

    @property
    def receivers(self) -> list[str]:
        """Where producers of pushed sources send to."""
        return self._engine.receivers.addresses()

    def receiverStats(self) -> dict[str, Any]:
        """Counters of every receiver, by address: items accepted, logged, pending, and more."""
        return self._engine.receivers.stats()

    def release(self) -> None:
        """Removes the resident state from all hosts. A later start recovers from the backups.

        Call it after the query has stopped or terminated: what no backup holds is lost.
        """
        self._refuse_inside_a_batch()
        self._refuse_while_it_runs()
        # Spark's query has ended, and what is left to be made durable of it may still be on its way.
        self._await_end()
        with self._at_rest():
            release_states(self._engine)

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """Between two batches, or after the last one."""
        self._refuse_inside_a_batch()
        with self._batch_lock, self._engine.lease.kept():
            yield

    def _refuse_inside_a_batch(self) -> None:
        if self._batch_thread == threading.get_ident():
            raise UsageError(
                "A sink cannot ask the query that is calling it.",
                remedy="Use the rows it was given, or ask after the batch from another thread.",
            )

    def _refuse_while_it_runs(self) -> None:
        if self._spark_query.isActive:
            raise UsageError("The query is still running.", remedy="Stop it, or await its termination, first.")

    def raise_failure(self) -> None:
        """Raises what made the query fail, if anything has."""
        if self._failure is not None:
            raise plain(self._failure)

    # --- inside foreachBatch --------------------------------------------------------------------------------

    def attach(self, query: StreamingQuery, sources: str = "", sinks: str = "") -> None:
        """Begins to follow the Spark query underneath; for `StreamWriter.start`."""
        self._places = (sources, sinks)
        self._query = query
        self._attached.set()
        self._watching = threading.Thread(target=self._watch, name="afspark-watch", daemon=True)
        self._watching.start()

    def _await_end(self) -> None:
        if self._watching is not None:
            self._watching.join()

    def _watch(self) -> None:
        """Watches until the query ends, and stops it if another driver has taken over: an idle one would not notice.

        Then producers must not be acknowledged by a query that will never process anything again, and the next
        driver need not wait.
        """
        orderly = False
        try:
            while not self._spark_query.awaitTermination(max(1.0, self._engine.lease.interval)):  # type: ignore[arg-type]
                self._stop_if_superseded()
                self._record_while_idle()
                self._keep_commit()
                self._answer_requests()
            orderly = self._failure is None
        except StreamingQueryException:
            # Whoever awaits the query hears of it. A batch that finds the query stopping ends like this as well.
            orderly = self._stopping and self._failure is None
        finally:
            self._close(orderly=orderly)

    def _close(self, *, orderly: bool) -> None:
        """Lets go of everything; a query that has failed, in a batch or in Spark, takes no last snapshot."""
        self._keep_commit()
        try:
            if orderly and self._flushes and (self._engine.runs or self._engine.resumed):
                with self._at_rest():
                    self._saved = take_last_snapshot(self._engine)
        finally:
            self._engine.close()

    def savepoint(self, name_or_path: str | os.PathLike[str]) -> str:
        """Makes a savepoint, from which queries can be started with ``option("savepoint", …)``; says where it is.

        A bare name belongs to the checkpoint, in its folder ``savepoints``; any other text is a folder or the address
        of a store, and a `Path` is a folder. It holds the query at a barrier: at the next one if batches run, else at
        the last; a query that has just been started is given a minute to come to its first. Batches go on while it is
        copied. `UsageError` if the place is taken.
        """
        self._refuse_inside_a_batch()
        place = absolute(place_of(self._engine.options.checkpoint, name_or_path))
        self._await_first_record()
        self._await_barrier()
        while True:
            with ExitStack() as held:
                with self._at_rest():
                    record = held.enter_context(held_record(self._engine))
                if record is not None:
                    save(self._engine, record, place)
                    return place
            if not self.isActive:
                raise UsageError(
                    "The query has ended, and Spark did not commit its last batch.",
                    remedy="Start it again, or use the command afspark savepoint.",
                )
            time.sleep(_GLANCE_SECONDS)

    def _await_first_record(self) -> None:
        """Waits for it if nobody has written one before, and one is to come."""
        deadline = time.monotonic() + _FIRST_RECORD_SECONDS
        comes = self._engine.pipeline.keeps_records and not self.resumed
        while comes and not self._engine.commits.recorded and self.isActive and time.monotonic() < deadline:
            time.sleep(_GLANCE_SECONDS)

    def _await_barrier(self) -> None:
        """Waits until what was processed up to now is in a snapshot, or no batch comes any more."""
        commits, goal, idle = self._engine.commits, self._engine.committed, 0
        while commits.pace.takes_snapshots and commits.records.covered.batch < goal and idle < _IDLE_GLANCES:
            commits.pace.wanted = True
            time.sleep(_GLANCE_SECONDS)
            status = self.status
            idle = idle + 1 if not (status["isDataAvailable"] or status["isTriggerActive"]) else 0
            if not self.isActive:
                return

    def _stop_if_superseded(self) -> None:
        try:
            self._engine.log.refuse_if_superseded()
        except AnotherDriver as error:
            self._failure = self._failure or error
            self._spark_query.stop()
        except StoreError:
            return  # the next batch says so

    def _record_while_idle(self) -> None:
        """Has what no record covers yet recorded, if no batch is at work, which would do so itself."""
        if not self._batch_lock.acquire(timeout=0.0):
            return
        try:
            if self._engine.runs and not self._stopping and self._failure is None:
                self._engine.commits.go_on_at_rest()
        except AfsparkError as error:
            # The next batch would have failed with it.
            self._failure = error
        finally:
            self._batch_lock.release()
        if self._failure is not None:
            # Not while the lock is held: Spark waits for its batch, which waits for the lock.
            self._spark_query.stop()

    def _keep_commit(self) -> None:
        """Copies the commit of the last batch; if that cannot be done, the next start runs the batch again."""
        if self._copies is not None:
            with suppress(StoreError):
                self._copies.keep_commit()

    def _answer_requests(self) -> None:
        try:
            answer_requests(self._engine.store, self.savepoint)
        except StoreError:
            return  # whoever asks waits until it can be read again

    def run_batch(self, frame: DataFrame, batch: int) -> None:
        """What Spark calls for every micro-batch."""
        # Never wait for the lock while stop() holds it: Spark's own stop waits for this very call to end.
        while not self._batch_lock.acquire(timeout=0.05):
            self._refuse_if_stopping()
        self._batch_thread = threading.get_ident()
        try:
            self._refuse_if_stopping()
            if self._copies is not None:
                # Before anything is done with it: a start on another host must know the same batch.
                self._copies.keep(Batch(batch))
            self._note(self._engine.run(Batch(batch), frame, self._hand_on))
        except Exception as error:
            self._failure = self._failure or (None if self._stopping else error)
            raise
        finally:
            self._batch_thread = None
            self._batch_lock.release()

    def _note(self, progress: BatchProgress) -> None:
        before = self._recent[-1].ended if self._recent else None
        self._recent.append(ToldBatch(progress, time.time(), before, self._names, *self._places))
        self.totals.add(progress)

    def _names(self) -> dict[str, Any]:
        return {"id": self.id, "runId": self.runId, "name": self.name}

    def tell_spark(self) -> None:
        """Has Spark count the rows of the batch that has just ended, where workers have read them themselves."""
        # The first batch may end before whoever has started the query was handed Spark's.
        if self._attached.wait(_ATTACHED_SECONDS) and not self._engine.pipeline.frames:
            tell_input_rows(self._spark_query, self._recent[-1].progress.items)

    def _refuse_if_stopping(self) -> None:
        if self._stopping:
            self._refused = True
            # Returning would let Spark commit a batch that nobody has applied.
            raise RuntimeError("the query is stopping")

    def _hand_on(self, batch: Batch) -> None:
        for outlet in self._outlets:
            run = self._engine.run_of(outlet.operator)
            with self._cluster.guarded(run.homes.values()):
                frame = self._output(outlet, run, batch)
                if frame is not None:
                    outlet.deliver(with_bounds(frame, run) if outlet.bounds else frame, batch)

    def _output(self, outlet: Outlet, run: OperatorRun, batch: Batch) -> DataFrame | None:
        if outlet.mode == "update":
            return self._results.changed_rows(run, batch)
        if outlet.mode == "complete":
            return self._results.current(run)
        if run.node.window is not None:
            return self._results.closed_windows(run, batch)
        return self._results.sent_items(run, batch)

    @property
    def _spark_query(self) -> StreamingQuery:
        assert self._query is not None
        return self._query
