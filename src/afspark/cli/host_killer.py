"""Kills hosts while a query runs, as planned, starts them again, and notes what it has done."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Any, Protocol, Self

from afspark.cluster.loopback.host_failures import FailureSchedule, KillHost, PlannedFailure
from afspark.errors import first_line
from afspark.report.wording import seconds_text

_LOOK_SECONDS = 0.05


class KillableHosts(Protocol):
    """Hosts that can be killed and started again."""

    def kill(self, host: str) -> None: ...

    def start(self, host: str) -> None: ...


@dataclass
class QueryPace:
    """How far a query is: batches done, and the seconds that all of them took together."""

    batches: int = 0
    seconds: float = 0.0


@dataclass
class HostKill:
    """A host that was killed: when (seconds since 1970, and since the first batch began), after how many batches, and
    when it had an executor again (None: not before the end).
    """

    host: str
    at: float
    after_seconds: float
    batches: int
    planned: PlannedFailure
    back_at: float | None = None

    def to_json(self) -> dict[str, Any]:
        away = None if self.back_at is None else self.back_at - self.at
        return {**asdict(self), "away_seconds": away}


class HostKiller:
    """A thread that carries out a schedule. ``alive`` names the hosts with executors, ``say`` tells the user.

    Hosts fail in the block of `watching` only; those that are away come back until the killer is closed.
    """

    def __init__(
        self,
        hosts: KillableHosts,
        schedule: FailureSchedule,
        *,
        alive: Callable[[], Collection[str]],
        say: Callable[[str], None],
    ) -> None:
        self._hosts, self._schedule, self._alive, self._say = hosts, schedule, alive, say
        self._pace: Callable[[], QueryPace] | None = None
        self._ended = Event()
        self._thread = Thread(target=self._run, name="afspark-hosts", daemon=True)
        self.kills: list[HostKill] = []
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def watching(self, pace: Callable[[], QueryPace]) -> Iterator[None]:
        """Hosts fail while the block runs, whose query goes as ``pace`` says."""
        self._pace = pace
        try:
            yield
        finally:
            self._pace = None

    def _run(self) -> None:
        began: float | None = None
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                began = self._look(began)
            except Exception as error:  # noqa: BLE001 - the query goes on without failures; the user is told
                if not self._ended.is_set():
                    self.error = error
                    self._say(f"Hosts are not killed any more: {first_line(error)}.")
                return

    def _look(self, began: float | None) -> float | None:
        pace = self._pace
        now = pace() if pace is not None else QueryPace()
        at = time.time()
        if began is None and now.batches:
            began = at - now.seconds
        if self._schedule.is_idle(now.batches) and all(kill.back_at is not None for kill in self.kills):
            return began
        alive = self._alive()
        usual = now.seconds / now.batches if now.batches else 0.0
        for action in self._schedule.actions(
            time.monotonic(), batches=now.batches, batch_seconds=usual, alive=alive, killing=pace is not None
        ):
            if isinstance(action, KillHost):
                at = time.time()
                self._hosts.kill(action.host)
                self.kills.append(HostKill(action.host, at, at - (began or at), now.batches, action.planned))
                self._say(f"{action.host} was killed, after {now.batches} batches.")
            else:
                self._hosts.start(action.host)
        for kill in self.kills:
            if kill.back_at is None and kill.host in alive and time.time() - kill.at > self._schedule.away_seconds:
                kill.back_at = time.time()
                self._say(f"{kill.host} is back, after {seconds_text(kill.back_at - kill.at)}.")
        return began


def with_recoveries(kills: Sequence[HostKill], ledger: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The kills as plain values, each with the workers that were lost since then and before the next kill.

    Of each of these: from the kill to the declared loss (``detection_seconds``), and to the end of the batch with which
    the worker was back (``recovered_seconds``); and whether its secondary took its place (``promoted``), which is so if
    no backup was read.
    """
    ends = [kill.at for kill in kills[1:]] + [float("inf")] * bool(kills)
    found = []
    for kill, end in zip(kills, ends, strict=True):
        losses = [
            {
                "operator": entry["operator"],
                "worker": entry["worker"],
                "batch": entry["batch"],
                "host": entry["host"],
                "promoted": entry["restore_seconds"] == 0.0 and bool(entry["host"]),
                "detection_seconds": entry["at"] - kill.at,
                "recovered_seconds": None
                if entry["gap_seconds"] is None
                else entry["at"] + entry["gap_seconds"] - kill.at,
            }
            for entry in ledger
            if kill.at <= entry["at"] < end and not entry["internal"]
        ]
        found.append(kill.to_json() | {"losses": losses})
    return found
