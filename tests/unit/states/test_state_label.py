"""How states are called in a segment."""

from __future__ import annotations

import pytest

from afspark.model.state_label import StateLabel


@pytest.mark.parametrize("pane", [None, 0, 17, -3])
def test_a_label_is_read_from_what_it_gives(pane: int | None) -> None:
    label = StateLabel("counts", pane)
    assert StateLabel.parse(label.text()) == label
    assert StateLabel.of_column(f"{label.text()}.value") == label
    assert StateLabel.of_column(f"{label.text()}.index.10") == label


def test_a_column_that_is_no_states_has_no_label() -> None:
    assert StateLabel.of_column("base") is None
