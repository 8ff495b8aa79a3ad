"""The loss ledger."""

from __future__ import annotations

import math
import secrets
from pathlib import Path

import pytest

from afspark.bounds import Thresholds
from afspark.errors import UsageError
from afspark.store import CountedFailure, Ledger, LedgerEntry, Loss, Recovery, Store, open_store
from afspark.store.base import Names
from afspark.store.local import LocalStore

FAILURE = CountedFailure(pane_taken={3: {"counts": 4.0}}, panes=(3, 3), incarnation=1)


def _loss(worker: int = 0, *, counted: bool = True, operator: str = "count", **fields: object) -> Loss:
    return Loss(
        batch=7,
        operator=operator,
        worker=worker,
        incarnation=1,
        counted=counted,
        cause="host lost",
        theta={"counts": 4.0, "model": math.inf},
        failures=2,
        counted_failure=FAILURE if counted else None,
        thresholds=Thresholds(theta={"counts": 4.0, "model": math.inf}, items=10, unacked=0, why="all of 16"),
        **fields,  # type: ignore[arg-type]
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


def test_entries_survive_and_merge(store: Store) -> None:
    ledger = Ledger(store)
    first, second = ledger.declare(_loss(0)), ledger.declare(_loss(1))
    assert (first.sequence, second.sequence) == (0, 1)
    recovery = Recovery(
        seconds=1.5,
        restored_cells=99,
        damaged=("objects/x",),
        gap_seconds=2.5,
        host="a",
        items_behind=4,
        panes=(3, None),
    )
    completed = ledger.complete(first, recovery)
    assert completed.recovery is not None and not completed.recovery.covered
    assert ledger.entries() == [completed, LedgerEntry(second)]
    again = Ledger(store)
    assert again.entries() == ledger.entries()
    third = again.declare(_loss(0))
    assert third.sequence == 2
    done = again.complete(third, Recovery(seconds=0.1, restored_cells=0))
    assert done.recovery is not None and done.recovery.covered
    assert Ledger(store).entries() == again.entries()


def test_a_loss_is_durable_before_declare_returns(store: Store) -> None:
    declared = Ledger(store).declare(_loss())
    assert [entry.loss for entry in Ledger(store).entries()] == [declared]


def test_failures_count_the_counted(store: Store) -> None:
    ledger = Ledger(store)
    for loss in (_loss(0), _loss(0), _loss(0, counted=False), _loss(1), _loss(0, operator="other")):
        ledger.declare(loss)
    for view in (ledger, Ledger(store)):
        assert view.failures("count", 0) == 2
        assert view.failures("count", 1) == 1
        assert view.failures("other", 0) == 1
        assert view.failures("count", 5) == 0


def test_two_drivers_do_not_collide(store: Store) -> None:
    one, two = Ledger(store), Ledger(store)
    assert one.entries() == two.entries() == []
    first, second = one.declare(_loss(0, at=1.0)), two.declare(_loss(1, at=2.0))
    assert first.sequence == second.sequence
    two.complete(second, Recovery(seconds=1, restored_cells=1))
    merged = Ledger(store)
    assert {entry.loss.worker: entry.recovery is not None for entry in merged.entries()} == {
        0: False,
        1: True,
    }
    assert merged.declare(_loss(2)).sequence == 1


@pytest.mark.parametrize("tokens", ["abc", "cba"])
def test_a_second_completion_replaces_the_first(store: Store, tokens: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever the order of their names.
    names = iter(tokens)
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(names) * size)
    ledger = Ledger(store)
    loss = ledger.declare(_loss())
    for cells in (1, 2):
        ledger.complete(loss, Recovery(seconds=1, restored_cells=cells))
    for view in (ledger, Ledger(store)):
        recovery = view.entries()[0].recovery
        assert recovery is not None and recovery.restored_cells == 2


@pytest.mark.parametrize("clocks", [(1.0, 2.0), (2.0, 1.0)])
@pytest.mark.parametrize("damaged", [(True, False), (False, True), (True, True)])
def test_what_no_bound_covers_stays_so_whatever_clocks_say(
    store: Store, clocks: tuple[float, float], damaged: tuple[bool, bool]
) -> None:
    loss = Ledger(store).declare(_loss())
    for place, (at, harmed) in enumerate(zip(clocks, damaged, strict=True)):
        lost = (f"objects/{place}",) if harmed else ()
        Ledger(store).complete(
            loss, Recovery(seconds=1, restored_cells=1, at=at, damaged=lost, panes=(place, place + 5))
        )
    (entry,) = Ledger(store).entries()
    assert entry.covered is False and entry.recovery is not None
    harmed = [place for place, one in enumerate(damaged) if one]
    assert entry.recovery.panes == (min(harmed), max(harmed) + 5)


@pytest.mark.parametrize("clock", [0.5, 1.0, 2.0], ids=["set back", "equal", "in order"])
@pytest.mark.parametrize("later", [False, True], ids=["by its driver", "by the next"])
def test_the_loss_that_was_recovered_is_completed_whatever_clocks_say(store: Store, clock: float, later: bool) -> None:
    """Two drivers have declared losses under the same number."""
    one, two = Ledger(store), Ledger(store)
    assert one.entries() == two.entries() == []
    one.declare(_loss(0, at=1.0))
    mine = two.declare(_loss(1, at=clock, operator="other"))
    ledger = Ledger(store) if later else two
    recovered = ledger.complete(mine, Recovery(seconds=1, restored_cells=1, damaged=("objects/x",)))
    assert recovered.loss == mine
    for view in (ledger, Ledger(store)) if later else (Ledger(store),):
        assert {entry.loss.operator: entry.covered for entry in view.entries()} == {"count": None, "other": False}


def test_an_unknown_loss_is_refused(store: Store) -> None:
    with pytest.raises(UsageError):
        Ledger(store).complete(_loss(), Recovery(seconds=1, restored_cells=1))


def test_damaged_entries_are_reported_and_the_others_kept(store: Store) -> None:
    ledger = Ledger(store)
    for worker in range(3):
        ledger.declare(_loss(worker))
    names = store.list("ledger")
    store.put(names[1], store.get(names[1])[:-20])
    again = Ledger(store)
    assert [item.name for item in again.damaged] == [names[1]]
    assert [entry.loss.worker for entry in again.entries()] == [0, 2]
    assert again.declare(_loss(3)).sequence == 3


def test_a_damaged_recovery_leaves_the_loss(store: Store) -> None:
    ledger = Ledger(store)
    ledger.complete(ledger.declare(_loss()), Recovery(seconds=1, restored_cells=1))
    name = next(name for name in store.list("ledger") if "recovery" in name)
    store.put(name, b"")
    again = Ledger(store)
    assert again.failures("count", 0) == 1
    assert again.entries()[0].recovery is None
    assert [item.name for item in again.damaged] == [name]


def test_the_store_is_listed_once(tmp_path: Path) -> None:
    class Counting(LocalStore):
        lists = 0

        def list(self, prefix: str) -> Names:
            Counting.lists += 1
            return super().list(prefix)

    ledger = Ledger(Counting(str(tmp_path)))
    for _ in range(3):
        ledger.complete(ledger.declare(_loss()), Recovery(seconds=1, restored_cells=1))
        ledger.failures("count", 0)
    assert Counting.lists == 1
    assert len(ledger.entries()) == 3


def _spoilt(store: Store, name: str, how: str) -> None:
    if how == "deleted":
        store.delete([name])
    else:
        store.put(name, store.get(name)[:-20])


@pytest.mark.parametrize("how", ["deleted", "damaged"])
@pytest.mark.parametrize("which", range(6))
def test_whatever_was_durable_once_is_missed(store: Store, which: int, how: str) -> None:
    """The newest one by the commit record, all others by what came after them."""
    ledger = Ledger(store)
    for worker in range(3):
        ledger.complete(ledger.declare(_loss(worker)), Recovery(seconds=1, restored_cells=1))
    heads = ledger.heads
    assert len(heads) == 1 and ledger.missing == []
    name = store.list("ledger")[which]
    _spoilt(store, name, how)
    again = Ledger(store)
    again.expect(heads)
    assert again.missing == [name]
    assert [item.name for item in again.damaged] == [name]
    # Whatever follows does not make it forgotten.
    again.declare(_loss(5))
    later = Ledger(store)
    later.expect(again.heads)
    assert later.missing == [name]


@pytest.mark.parametrize("written", [0.0, 0.5, 0.99])
def test_an_entry_whose_writer_died_is_not_missed(store: Store, written: float) -> None:
    """Nothing has followed from it."""
    ledger = Ledger(store)
    first = ledger.declare(_loss(0))
    before, heads = store.list("ledger"), ledger.heads
    ledger.declare(_loss(1))
    (torn,) = set(store.list("ledger")) - set(before)
    store.put(torn, store.get(torn)[: int(len(store.get(torn)) * written)])
    again = Ledger(store)
    again.expect(heads)
    assert again.missing == [] and [item.name for item in again.damaged] == [torn]
    again.declare(_loss(2))
    assert Ledger(store).missing == []
    assert [entry.loss.worker for entry in Ledger(store).entries()] == [first.worker, 2]


def test_entries_of_two_drivers_are_both_missed(store: Store) -> None:
    one, two = Ledger(store), Ledger(store)
    assert one.entries() == two.entries() == []
    one.declare(_loss(0))
    two.declare(_loss(1))
    merged = Ledger(store)
    assert len(merged.heads) == 2
    names = store.list("ledger")
    merged.declare(_loss(2))
    store.delete(names)
    assert Ledger(store).missing == names
