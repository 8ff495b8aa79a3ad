"""Receivers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from tests.unit.push.flightclient import SCHEMA


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Starts receivers: keywords of `ReceiverConfig`, all with a default."""
    started: list[Receiver] = []

    def start(**options: Any) -> Receiver:
        receiver = Receiver(ReceiverConfig(**{"schema": SCHEMA, "lanes": (0,)} | options))
        receiver.start()
        started.append(receiver)
        return receiver

    yield start
    for receiver in started:
        receiver.stop()
