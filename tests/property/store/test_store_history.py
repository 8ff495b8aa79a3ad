"""Random histories of drivers that write, die, come back and linger: the newest commit is always found."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from afspark.errors import AnotherDriver
from afspark.store import (
    CommitRecord,
    CompactionRule,
    Ledger,
    Loss,
    ObjectRef,
    OperatorRecord,
    RecordLog,
    WorkerRecord,
    extend,
    load_chain,
    object_name,
    seal,
)
from afspark.store.compaction import Chain
from tests.property.store.faulty_store import Crash, Drop, Fault, FaultyStore, MemoryStore, Tear

CRASHES = st.one_of(st.builds(Tear, st.floats(0, 1, exclude_max=True)), st.just(Drop()))
RULE = CompactionRule(floor_cells=4, longest=6)


class Drivers(RuleBasedStateMachine):
    """One live driver, any number of replaced ones, and a model of what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.store = FaultyStore(MemoryStore())
        self.zombies: list[RecordLog] = []
        self.committed: list[CommitRecord] = []
        self.engine = -1
        self.stamp = 0
        self.losses = 0

    @initialize()
    def first_driver(self) -> None:
        self.log = RecordLog(self.store)
        assert self.log.open_epoch(-1) is None

    def _object(self, log: RecordLog, batch: int, full: bool) -> ObjectRef:
        self.stamp += 1
        name = object_name(log.epoch, "count", 0, 0, batch, self.stamp)
        data = seal({"stamp": self.stamp}, {})
        self.store.put(name, data)
        return ObjectRef.of(name, data, cells=1, full=full)

    def _next(self, log: RecordLog, newest: CommitRecord | None) -> CommitRecord:
        chain: Chain = ()
        previous: Chain = ()
        batch = 0
        if newest is not None:
            chain, previous = newest.operators["count"].workers[0].chain, newest.operators["count"].workers[0].previous
            batch = newest.batch + 1
        chain, previous = extend(chain, previous, self._object(log, batch, RULE.due(chain)))
        worker = WorkerRecord(0, 0, 0, batch, "host", {}, chain, previous)
        return CommitRecord(batch, log.epoch, {"count": OperatorRecord(workers=(worker,))}, items=self.stamp)

    def _open(self, upto: int) -> None:
        self.zombies.append(self.log)
        self.committed = [record for record in self.committed if record.batch <= upto]
        self.log = RecordLog(self.store)
        found = self.log.open_epoch(upto)
        assert found == (self.committed[-1] if self.committed else None)

    @rule()
    def commit_a_batch(self) -> None:
        record = self._next(self.log, self.log.newest())
        self.log.write(record)
        self.committed.append(record)
        self.engine = record.batch

    @rule(fault=CRASHES)
    def write_again_after_a_failed_write(self, fault: Fault) -> None:
        record = self._next(self.log, self.log.newest())
        self.store.fail_next(fault)
        with suppress(Crash):
            self.log.write(record)
        assert self.log.newest() == (self.committed[-1] if self.committed else None)
        self.log.write(record)
        self.committed.append(record)
        self.engine = record.batch

    @rule(fault=CRASHES)
    def die_while_writing_a_record(self, fault: Fault) -> None:
        record = self._next(self.log, self.log.newest())
        self.store.fail_next(fault)
        with suppress(Crash):
            self.log.write(record)
        self._open(self.engine)

    @rule()
    def die_between_record_and_engine_commit(self) -> None:
        self.log.write(self._next(self.log, self.log.newest()))
        self._open(self.engine)

    @rule(fault=CRASHES)
    def die_while_opening(self, fault: Fault) -> None:
        self.store.fail_next(fault)
        with suppress(Crash):
            RecordLog(self.store).open_epoch(self.engine)
        self._open(self.engine)

    @rule(sweep=st.booleans())
    def restart(self, sweep: bool) -> None:
        self._open(self.engine)
        if sweep:
            self.log.sweep()

    @rule(which=st.integers(0, 5), times=st.integers(1, 3))
    def replaced_driver_goes_on(self, which: int, times: int) -> None:
        if self.zombies:
            zombie = self.zombies[which % len(self.zombies)]
            for _ in range(times):
                record = self._next(zombie, zombie.newest())
                with pytest.raises(AnotherDriver):
                    zombie.write(record)
            with suppress(AnotherDriver):
                assert zombie.prune(keep=2, slack=0) == []
            with pytest.raises(AnotherDriver):
                zombie.sweep()

    @rule(slack=st.integers(0, 3))
    def prune(self, slack: int) -> None:
        self.log.prune(keep=2, slack=slack)
        self.committed = [record for record in self.committed if self.log.newest(record.batch) == record]

    @rule(fault=st.one_of(st.none(), CRASHES))
    def lose_a_worker(self, fault: Fault | None) -> None:
        loss = Loss(
            batch=0,
            operator="count",
            worker=0,
            incarnation=0,
            counted=True,
            cause="test",
            theta={},
            failures=0,
        )
        ledger = Ledger(self.store)
        if fault:
            self.store.fail_next(fault)
            with suppress(Crash):
                ledger.declare(loss)
        else:
            ledger.declare(loss)
            self.losses += 1

    @invariant()
    def the_newest_commit_is_in_memory_and_loads(self) -> None:
        newest = self.log.newest() if self.committed else None
        assert newest == (self.committed[-1] if self.committed else None)
        for record in self.committed[-2:]:
            worker = record.operators["count"].workers[0]
            loaded = load_chain(self.store, worker.chain, worker.previous)
            assert loaded.complete and loaded.used == worker.chain
            assert load_chain(self.store, worker.previous).complete

    @invariant()
    def every_declared_loss_counts(self) -> None:
        assert Ledger(self.store).failures("count", 0) == self.losses


TestDrivers = Drivers.TestCase
