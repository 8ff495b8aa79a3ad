"""Which executors answer: events in, verdicts out.

The driver asks every executor for a sign of life, over and over, at most one question at a time. An executor that has
owed an answer for longer than its deadline is *silent*: its process or its host is frozen, or the network is cut. One
that Spark has removed is *gone*. Nothing here waits, asks, or reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

#: How often executors are asked at least. One that fails owes its answer from the next question on.
ASK_SECONDS = 0.2

#: So many questions fit into the time after which an executor is silent, where that is short; but no more than ten a
#: second are asked, because each costs the driver something.
ASKED_IN_TIME = 5
LEAST_ASK_SECONDS = 0.1

#: How long after the time of an executor is over the driver looks whether it has answered.
_MOMENT = 0.001

#: How long it takes to end the stages that wait for a silent host.
ENDING_SECONDS = 0.2

#: An executor is not silent before it has taken so many times as long as any has lately.
SLOWNESS = 3.0

#: Slow answers of others put off the deadline by no more than this factor.
LONGEST_DELAY = 4.0

#: Of how many answers it is remembered how long they took.
REMEMBERED_ANSWERS = 400

#: A driver that comes so much later to its round than it should was held up as a whole, and heard nobody.
HELD_UP_SECONDS = 1.0

#: How many failures are remembered.
REMEMBERED_FAILURES = 100


class Absence(StrEnum):
    """How an executor is missed."""

    SILENT = "silent"
    GONE = "gone"


@dataclass(frozen=True)
class HostFailure:
    """An executor that was missed. Times are those of the driver's clock that never goes back, in seconds."""

    host: str
    executor: str
    kind: Absence
    #: its last sign of life: what happened to it happened after that; or since when somebody watches again
    heard: float
    #: when the driver knew
    noticed: float
    #: of a silence: after how many seconds the driver was to know at most
    limit: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the driver waits for executors before it acts.

    ``silent``: seconds without an answer; ``gone``: seconds that a host may be without an executor before stages stop
    waiting for one; ``removal``: seconds without an answer after which Spark is told to replace the executor.
    """

    silent: float = 5.0
    gone: float = 5.0
    removal: float = 15.0

    @classmethod
    def of(cls, *, standby: bool, elsewhere: bool = False, silent: float | None = None) -> Patience:
        """That of a query. ``standby``: secondaries could go on at once; ``elsewhere``: workers are restored on other
        hosts at once; ``silent``: what its user says.

        >>> Patience.of(standby=True)
        Patience(silent=0.5, gone=0.0, removal=10.0)
        >>> Patience.of(standby=False, elsewhere=True)
        Patience(silent=5.0, gone=0.0, removal=15.0)
        >>> Patience.of(standby=False, silent=30.0)
        Patience(silent=30.0, gone=5.0, removal=90.0)
        """
        usual = cls(silent=0.5, removal=10.0) if standby else cls()
        if standby or elsewhere:
            usual = replace(usual, gone=0.0)
        return usual if silent is None else replace(usual, silent=silent, removal=max(usual.removal, 3 * silent))

    @property
    def ask_seconds(self) -> float:
        """How often executors are asked.

        >>> Patience.of(standby=True).ask_seconds, Patience.of(standby=False).ask_seconds
        (0.1, 0.2)
        """
        return min(max(self.silent / ASKED_IN_TIME, LEAST_ASK_SECONDS), ASK_SECONDS)


@dataclass
class _Executor:
    host: str
    #: its last sign of life
    heard: float
    #: when it was asked what it has not answered
    asked: float | None = None
    silent: bool = False
    removed: bool = False


@dataclass
class Liveness:
    """What is known of all executors. ``patience`` may change at any time."""

    patience: Patience
    _executors: dict[str, _Executor] = field(default_factory=dict)
    #: hosts without an executor, since when
    _empty: dict[str, float] = field(default_factory=dict)
    _took: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_ANSWERS))
    _failures: deque[HostFailure] = field(default_factory=lambda: deque(maxlen=REMEMBERED_FAILURES))
    _looked: float | None = None
    _was_late: bool = False

    # --- events ---------------------------------------------------------------------------------------------

    def look(self, listed: Mapping[str, str], now: float) -> list[HostFailure]:
        """Begins a round; who is missed since the last one. ``listed``: the host of every executor that Spark knows.

        If the driver itself was held up since the last round, answers may wait to be heard: nobody is accused then.
        """
        held_up = 0.0 if self._looked is None else now - self._looked - self.patience.ask_seconds
        if held_up > HELD_UP_SECONDS:
            for one in self._executors.values():
                one.asked = None if one.asked is None else one.asked + held_up
        # A driver that is always late must judge all the same.
        self._was_late = held_up > ASK_SECONDS and not self._was_late
        if self._looked is None:
            # While nobody watched, nobody was missed: what happened then counts from now on.
            for one in self._executors.values():
                one.heard = now
        self._looked = now
        found = []
        for name in sorted(self._executors.keys() - listed.keys()):
            one = self._executors.pop(name)
            self._empty.setdefault(one.host, now)
            if not one.silent:
                found.append(HostFailure(one.host, name, Absence.GONE, one.heard, now))
        for name, host in listed.items():
            self._executors.setdefault(name, _Executor(host, now))
        for host in listed.values():
            self._empty.pop(host, None)
        for name, one in self._executors.items():
            if not one.silent and not self._was_late and self._owes(one, now) >= self.deadline:
                one.silent = True
                found.append(HostFailure(one.host, name, Absence.SILENT, one.heard, now, self.detection_seconds))
        self._failures += found
        return found

    def pause(self) -> None:
        """Nobody is asked for a while: what was asked counts no more."""
        self._looked = None
        for one in self._executors.values():
            one.asked = None

    def asked(self, executor: str, now: float) -> None:
        """It was asked, perhaps once more because the last question came to nothing."""
        one = self._executors[executor]
        one.asked = now if one.asked is None else one.asked

    def answered(self, executor: str, now: float) -> None:
        """It has answered the question that it was asked last."""
        one = self._executors.get(executor)
        if one is None or one.asked is None:
            return
        if not one.silent:
            # It may have answered at any time since the last round.
            self._took.append(max(0.0, now - one.asked - self.patience.ask_seconds))
        one.heard, one.asked, one.silent = now, None, False

    def removed(self, executor: str) -> None:
        """Spark was told to replace it, and may have done so."""
        if executor in self._executors:
            self._executors[executor].removed = True

    # --- verdicts -------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """How long an executor may take to answer: longer where all are slow, because the machines are busy."""
        slowest = max(self._took, default=0.0)
        return max(self.patience.silent, min(SLOWNESS * slowest, LONGEST_DELAY * self.patience.silent))

    @property
    def detection_seconds(self) -> float:
        """Seconds from a failure until the driver knows and waits for nothing, at most: until the next question, the
        deadline of its answer, and the end of the stages under way.
        """
        return self.deadline + self.patience.ask_seconds + ENDING_SECONDS

    def next_look(self, now: float) -> float:
        """Seconds until the next round: until executors are asked again, or the time of one of them is over."""
        owing = [one for one in self._executors.values() if one.asked is not None and not one.silent]
        left = [self.deadline - self._owes(one, now) for one in owing]
        return min([self.patience.ask_seconds, *(one + _MOMENT for one in left if one > 0)])

    def silent_executors(self) -> frozenset[str]:
        return frozenset(name for name, one in self._executors.items() if one.silent)

    def silent_hosts(self) -> frozenset[str]:
        """Hosts with a silent executor. What holds that up holds up their state, whatever else answers there."""
        return frozenset(one.host for one in self._executors.values() if one.silent)

    def missing_hosts(self) -> frozenset[str]:
        """Hosts where nothing should be begun: silent ones, and those that had executors and have none now."""
        return self.silent_hosts() | self._empty.keys()

    def given_up_hosts(self, now: float) -> frozenset[str]:
        """Missing hosts that no stage should wait for any longer."""
        return self.silent_hosts() | self._empty_for_long(now)

    def _empty_for_long(self, now: float) -> frozenset[str]:
        return frozenset(host for host, since in self._empty.items() if now - since >= self.patience.gone)

    def to_remove(self, now: float) -> list[str]:
        """Silent executors that Spark should replace."""
        return [
            name
            for name, one in self._executors.items()
            if one.silent and not one.removed and self._owes(one, now) > self.patience.removal
        ]

    def failures(self) -> tuple[HostFailure, ...]:
        """The last ones, oldest first."""
        return tuple(self._failures)

    def _owes(self, one: _Executor, now: float) -> float:
        """For how long it has owed an answer."""
        return 0.0 if one.asked is None else now - one.asked


@dataclass
class StageUnderWay:
    """A stage that runs. ``hosts``: where its tasks belong, and where what they read is kept."""

    tag: str
    hosts: frozenset[str]
    #: whether the driver waits for it no longer
    is_cancelled: bool = False

    def waits_for(self, missing: Collection[str]) -> bool:
        """Whether it cannot end without one of these hosts."""
        return not self.hosts.isdisjoint(missing)
