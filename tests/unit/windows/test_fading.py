"""When the base of decaying states has moved, and a backup has to have all of them."""

from __future__ import annotations

import pytest

from afspark.model.states import HeapColumns
from afspark.model.windows import Decaying, Fading

FAR = 10**6


@pytest.fixture
def fading() -> Fading:
    made = Fading(Decaying(0.5, 10, by="processing"), HeapColumns())
    made.begin()
    made.move([], 0)
    made.begin()
    assert not made.moved
    return made


def test_a_move_is_remembered_until_a_backup_has_all_cells(fading: Fading) -> None:
    fading.move([], FAR)
    for _ in range(2):
        assert fading.moved
        fading.begin()
    fading.written()
    assert fading.moved, "the transaction may yet be undone"
    fading.begin()
    assert not fading.moved


def test_what_is_undone_was_not_written(fading: Fading) -> None:
    fading.move([], FAR)
    fading.begin()
    fading.written()
    fading.rollback()
    assert fading.moved
    fading.begin()
    assert fading.moved


def test_a_move_that_is_undone_is_forgotten(fading: Fading) -> None:
    fading.move([], FAR)
    fading.rollback()
    assert not fading.moved and fading.base == 0
    fading.begin()
    assert not fading.moved
