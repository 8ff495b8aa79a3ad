"""Acknowledgements of one stream, told by two threads."""

from __future__ import annotations

import json

import pytest

from afspark.push.receiver.acks import Acks


class Sent:
    """Notes what is written; ``meanwhile`` is called while a message is under way."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.meanwhile = lambda: None

    def write(self, data: bytes) -> None:
        self.meanwhile()
        self.ends.append(json.loads(data)["end"])


@pytest.mark.parametrize("when", ["after", "while"])
def test_an_end_that_is_told_late_takes_nothing_back(when: str) -> None:
    """The item log has acknowledged up to 30 when the reading thread tells of 20, which it had asked for before."""
    sent = Sent()
    acks = Acks(sent.write, lambda lane, end: "")
    acks.expect(0, 30)
    acks.owe(0, 30, from_reader=True)
    if when == "while":
        sent.meanwhile = lambda: acks.owe(0, 20, from_reader=True)
    acks.flush()
    acks.owe(0, 20, from_reader=True)
    acks.flush()
    assert sent.ends == [30, 30]
    assert acks.wait(0.0), "the stream would never end"
