"""Units as they could have been measured: a state of 2 GB of which 10 MB change in a second."""

from __future__ import annotations

from typing import Any

from afspark.control import FailureKind, Quantity, Situation, Unit, UnitHistory

NOW = 1_000.0
UNIT = Unit("counts", 0)


def history(
    *,
    state: float = 2e9,
    written: float = 1e7,
    write_seconds: float = 0.1,
    checkpoint_cpu: float = 0.01,
    items: float = 10_000.0,
    throughput: float = 50_000.0,
    received: float = 1e7,
    sent: float = 0.0,
    cpu: float = 0.5,
    times: dict[Quantity, float] | None = None,
    detection: float = 0.5,
    now: float = NOW,
) -> UnitHistory:
    """Ten seconds with a batch and a checkpoint each; the last checkpoint was captured a second ago.

    100 MB are read in a second; a second of items is replayed in a fifth of one.
    """
    found = UnitHistory()
    for second in range(10, 0, -1):
        at = now - second
        found = found.add(Quantity.CHECKPOINT_SIZE, at=at, amount=state)
        found = found.add(Quantity.CHECKPOINT_WRITE, at=at, seconds=write_seconds, amount=written)
        found = found.add(Quantity.CHECKPOINT_CPU, at=at, seconds=checkpoint_cpu)
        for what, amount in (
            (Quantity.RECEIVED, items),
            (Quantity.RECEIVED_BYTES, received),
            (Quantity.SENT_BYTES, sent),
            (Quantity.CPU, cpu),
        ):
            found = found.add(what, at=at + 1, seconds=1.0, amount=amount)
        found = found.add(Quantity.PROCESSED, at=at + 1, seconds=0.2, amount=throughput / 5)
    steps = {
        Quantity.WAIT: 0.0,
        Quantity.PROMOTION: 0.1,
        Quantity.DEPLOY: 3.0,
        Quantity.WIRE_SEND: 0.2,
        Quantity.WIRE_RECEIVE: 0.3,
        **(times or {}),
    }
    for step, seconds in steps.items():
        found = found.add(step, at=now - 20, seconds=seconds)
    for kind in FailureKind:
        found = found.add(kind, at=now - 20, seconds=detection)
    return found


def situation(found: UnitHistory | None = None, *, now: float = NOW, **facts: Any) -> Situation:
    return Situation(unit=UNIT, history=history(now=now) if found is None else found, now=now, **facts)
