"""How long a unit would take to recover, under any scheme and at any time.

StreamMine3G's tables 1 and 2, and three terms that they leave out: the time until the failure is noticed, the time that
a host is given to come back where nobody can take its place, and that of the promotion of a secondary. Table 1 prints
active standby as "0 + t_deploy"; its text says that nothing but sending has to be switched on. The text is followed:
promotion is what active standby takes, after detection.

A step that was never measured counts with what batches without a failure tell of it (`Situation.expected`): every batch
wires its workers anew. Where nothing is told the estimate is unknown, which counts as too slow.
"""

from __future__ import annotations

from collections.abc import Sequence

from afspark.control.history import UnitHistory
from afspark.control.quantities import FailureKind, Measurement, Quantity
from afspark.control.recovery_times import RecoveryTimes
from afspark.control.schemes import SWITCHES, Protection, RecoveryStep, Scheme, steps_of
from afspark.control.situation import Situation

_BULK = 0.1
"""Transfers of at least this part of the largest one tell a throughput, smaller ones what a transfer takes at least."""


def estimate(
    protection: Protection,
    situation: Situation,
    *,
    gap: bool = False,
    interval: float | None = None,
    kind: FailureKind | None = None,
) -> RecoveryTimes:
    """Seconds by step until the unit has applied its next batch, if its primary failed.

    Now, with what came since the last checkpoint; or with ``interval`` at the worst moment if checkpoints were so many
    seconds apart: before the next one is safe, with items coming as fast as they do in the present. ``gap``: nothing is
    replayed. ``kind``: after a failure of this kind; None: of whatever kind is noticed last.
    """
    if protection is Scheme.ACTIVE_REPLICATION:
        # Its secondary sends already. If a batch is late nevertheless, that is what a failure costs.
        late = situation.takeover(kind) or 0.0
        return RecoveryTimes(promotion=late, replay=_catch_up_seconds(situation, gap=gap))

    found: dict[str, float | None] = {}
    for step in steps_of(protection, elsewhere=situation.elsewhere):
        match step:
            case RecoveryStep.DETECTION:
                found[step] = situation.detection(kind)
            case RecoveryStep.READ:
                found[step] = _read(situation)
            case RecoveryStep.REPLAY:
                found[step] = replay_seconds(protection, situation, gap=gap, interval=interval)
            case _:
                found[step] = situation.step(Quantity(step.value))
    if SWITCHES[protection].processing:
        found[RecoveryStep.REPLAY] = _catch_up_seconds(situation, gap=gap)
    return RecoveryTimes(**found)


def _read(situation: Situation) -> float | None:
    checkpoint = situation.history.newest(Quantity.CHECKPOINT_SIZE)
    if not situation.stateful:
        return 0.0
    return None if checkpoint is None else transfer_seconds(checkpoint.amount, transfers(situation.history))


def transfers(history: UnitHistory) -> tuple[Measurement, ...]:
    """Checkpoints written, which there are many of and which are usually slower, and those read in recoveries."""
    return history.of(Quantity.CHECKPOINT_WRITE) + history.of(Quantity.READ)


def transfer_seconds(size: float, known: Sequence[Measurement]) -> float | None:
    """Seconds for ``size`` bytes at the lowest throughput recorded, as in table 2; None if there is no record.

    Small transfers (changes since the last checkpoint) would make that throughput absurdly low, because their time is
    that of a request: the longest of them is added instead.

    >>> transfer_seconds(1e8, [Measurement(0, 1.0, 1e8), Measurement(1, 2.0, 1e8), Measurement(2, 0.02, 100)])
    2.02
    """
    timed = [one for one in known if one.amount > 0]
    if not size or not timed:
        return None if size else 0.0
    bulk = _BULK * max(one.amount for one in timed)
    request = max((one.seconds for one in timed if one.amount < bulk), default=0.0)
    return request + size * max(one.seconds / one.amount for one in timed if one.amount >= bulk)


def replay_seconds(
    protection: Protection, situation: Situation, *, gap: bool = False, interval: float | None = None
) -> float | None:
    """Seconds for the items since the last checkpoint at present processing throughput; see `estimate`.

    That is the lowest of the present, as the lowest one recorded is what reading goes at; and none of the replays that
    are remembered was slower.
    """
    if not situation.stateful or (gap and isinstance(protection, Scheme)):
        return 0.0
    if not situation.replayable and protection is not Scheme.HOT_STANDBY:
        return None  # a hot standby has them in its queue
    items = _waiting_now(situation) if interval is None else _waiting_at_worst(situation, interval)
    throughput = _replay_throughput(situation)
    if items is None or not items:
        return items
    return items / throughput if throughput else None


def _catch_up_seconds(situation: Situation, *, gap: bool) -> float | None:
    """Seconds for what a secondary that processes everything has yet to come to: one that is slower than its primary
    falls behind, and works that off when it is promoted.
    """
    if gap or not situation.behind:
        return 0.0
    throughput = _replay_throughput(situation)
    return situation.behind / throughput if throughput else None


def _replay_throughput(situation: Situation) -> float | None:
    present = situation.history.lowest_rate(Quantity.PROCESSED, situation.now)
    replays = situation.history.of(Quantity.REPLAYED)
    known = [one.amount / one.seconds for one in replays if one.seconds > 0 and one.amount > 0]
    return min([*known, present] if present else known, default=None)


def seconds_until_safe(history: UnitHistory) -> float | None:
    """The longest that a checkpoint took from its capture until a recovery could count on it; None: there was none."""
    safe = history.longest(Quantity.CHECKPOINT_SAFE)
    return history.longest(Quantity.CHECKPOINT_WRITE) if safe is None else safe


def _waiting_now(situation: Situation) -> float | None:
    if situation.waiting is not None:
        return situation.waiting
    checkpoint = situation.history.newest(Quantity.CHECKPOINT_SIZE)
    return None if checkpoint is None else situation.history.amount_since(Quantity.RECEIVED, checkpoint.at)


def _waiting_at_worst(situation: Situation, interval: float) -> float | None:
    """A checkpoint covers nothing before it is safe."""
    writing = seconds_until_safe(situation.history)
    rate = situation.history.peak_rate(Quantity.RECEIVED, situation.now)
    return None if writing is None or rate is None else rate * (interval + writing)
