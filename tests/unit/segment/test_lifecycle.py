from __future__ import annotations

from dataclasses import replace

import pytest

from afspark.protocol import lifecycle
from afspark.protocol.lifecycle import (
    FORMAT_VERSION,
    RESTORING,
    TRANSITIONS,
    Absent,
    Action,
    Foreign,
    Found,
    Hint,
    Identity,
    Position,
    Present,
    Wanted,
    decide,
    locate,
)

ME = Identity(query_id="q", fingerprint="f", operator="count", worker=1, workers=4, checkpoint="/c")
BATCH = 5
INCARNATION = 2
FENCE = 3


def present(version: int, marked: bool = False, incarnation: int = INCARNATION) -> Present:
    return Present(ME, incarnation, version, marked)


FOUND: list[tuple[Found, Position]] = [
    (Absent(), Position.ABSENT),
    (Foreign("format"), Position.FOREIGN),
    (Present(replace(ME, query_id="other"), INCARNATION, 4, False), Position.FOREIGN),
    (Present(replace(ME, fingerprint="other"), INCARNATION, 4, False), Position.FOREIGN),
    (Present(replace(ME, operator="other"), INCARNATION, 4, False), Position.FOREIGN),
    (Present(replace(ME, worker=2), INCARNATION, 4, False), Position.FOREIGN),
    (Present(replace(ME, workers=5), INCARNATION, 4, False), Position.FOREIGN),
    (Present(replace(ME, format_version=FORMAT_VERSION + 1), INCARNATION, 4, False), Position.FOREIGN),
    (Present(replace(ME, checkpoint="file:/c"), INCARNATION, 4, False), Position.BEFORE),
    (present(4, incarnation=1), Position.OLDER),
    (present(5, incarnation=1), Position.OLDER),
    (present(4, incarnation=3), Position.NEWER),
    (Present(ME, INCARNATION, 4, False, FENCE + 1), Position.NEWER),
    (Present(ME, INCARNATION - 1, 4, False, FENCE + 1), Position.NEWER),
    (Present(ME, INCARNATION, 4, False, FENCE), Position.BEFORE),
    (present(RESTORING, incarnation=1), Position.OLDER),
    (present(RESTORING), Position.RESTORING),
    (present(-1), Position.BEHIND),
    (present(3), Position.BEHIND),
    (present(3, marked=True), Position.BEHIND),
    (present(4), Position.BEFORE),
    (present(4, marked=True), Position.HALFWAY),
    (present(5), Position.APPLIED),
    (present(5, marked=True), Position.AHEAD),
    (present(6), Position.AHEAD),
]


@pytest.mark.parametrize(("found", "position"), FOUND)
def test_position(found: Found, position: Position) -> None:
    assert locate(found, Wanted(ME, INCARNATION, BATCH, fence=FENCE)) is position


REPLAYED = [
    (present(4), Position.BEFORE),
    (present(5), Position.APPLIED),
    (present(5, marked=True), Position.LATER),
    (present(6), Position.LATER),
]


@pytest.mark.parametrize(("found", "position"), REPLAYED)
def test_a_batch_that_is_replayed_may_be_in_the_past(found: Found, position: Position) -> None:
    wanted = Wanted(ME, INCARNATION, BATCH, fence=FENCE, replay=True)
    assert locate(found, wanted) is position
    if position is Position.LATER:
        assert decide(found, wanted) is Action.ALREADY_APPLIED


@pytest.mark.parametrize(
    ("found", "position"),
    [
        (present(2), Position.BEFORE),
        (present(2, marked=True), Position.HALFWAY),
        (present(4), Position.BEFORE),
        (present(5), Position.APPLIED),
        (present(RESTORING), Position.RESTORING),
    ],
)
def test_one_that_leaves_batches_out_is_not_behind(found: Found, position: Position) -> None:
    wanted = Wanted(ME, INCARNATION, BATCH, fence=FENCE, skips=True)
    assert locate(found, wanted) is position


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize(
    ("found", "position"),
    [
        (present(1), Position.BEHIND),
        (present(2), Position.BEFORE),
        (present(3, marked=True), Position.HALFWAY),
        (present(5), Position.APPLIED),
        (present(RESTORING), Position.RESTORING),
    ],
)
def test_one_that_backups_complete_is_not_behind(found: Found, position: Position, skips: bool) -> None:
    """Unless it lacks more than they hold."""
    wanted = Wanted(ME, INCARNATION, BATCH, fence=FENCE, skips=skips, completes_from=2)
    assert locate(found, wanted) is position


def test_positions_are_all_covered() -> None:
    assert {position for _, position in (*FOUND, *REPLAYED)} == set(Position)


@pytest.mark.parametrize(
    ("version", "marked", "position"),
    [
        (RESTORING, False, Position.RESTORING),
        (-1, False, Position.BEFORE),
        (-1, True, Position.HALFWAY),
        (0, False, Position.APPLIED),
        (0, True, Position.AHEAD),
    ],
)
def test_positions_around_the_first_batch(version: int, marked: bool, position: Position) -> None:
    assert locate(present(version, marked), Wanted(ME, INCARNATION, 0)) is position


def documented_rows() -> list[tuple[Position, Hint, Action]]:
    table = (lifecycle.__doc__ or "").split("========== ")
    lines = [line for part in table for line in part.splitlines() if line and not line.startswith("=")]
    head = next(number for number, line in enumerate(lines) if line.startswith("position "))
    hints = [Hint(word) for word in lines[head].split()[1:]]
    rows = [line.split() for line in lines[head + 1 : head + 1 + len(Position)]]
    return [(Position(row[0]), hint, Action(word)) for row in rows for hint, word in zip(hints, row[1:], strict=True)]


def test_documented_table_is_the_table() -> None:
    assert {(position, hint): action for position, hint, action in documented_rows()} == TRANSITIONS
    assert len(TRANSITIONS) == len(Position) * len(Hint)


@pytest.mark.parametrize(("position", "hint", "action"), documented_rows())
def test_every_row(position: Position, hint: Hint, action: Action) -> None:
    for found, where in FOUND:
        if where is position:
            assert decide(found, Wanted(ME, INCARNATION, BATCH, hint, FENCE)) is action


def test_only_a_matching_segment_is_ever_changed_in_place() -> None:
    in_place = {
        Action.APPLY,
        Action.ROLL_BACK_THEN_APPLY,
        Action.ROLL_BACK,
        Action.STEP_BACK,
        Action.ALREADY_APPLIED,
        Action.NOTHING,
    }
    usable = {Position.BEFORE, Position.HALFWAY, Position.APPLIED}
    for (position, _), action in TRANSITIONS.items():
        if position is Position.LATER:
            assert action in (Action.ALREADY_APPLIED, Action.AHEAD)
        else:
            assert (action in in_place) == (position in usable)


def test_only_the_driver_declares_a_loss() -> None:
    for (_, hint), action in TRANSITIONS.items():
        if action in {Action.CREATE, Action.RECOVER}:
            assert hint.value == action.value


def test_refused_actions_are_those_that_do_nothing_on_the_host() -> None:
    assert {action for action in Action if action.refused} == {
        Action.MISSING,
        Action.FOREIGN,
        Action.STALE,
        Action.SUPERSEDED,
        Action.BEHIND,
        Action.AHEAD,
    }
