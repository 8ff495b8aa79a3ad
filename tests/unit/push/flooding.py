"""Producers that are much faster than the worker, or than the store of the log: who waits, and what memory it takes."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from afspark.push.consumer.lane_client import LaneClient
from afspark.push.producer.producer import Producer
from tests.unit.push.child_receiver import WORKERS, ChildReceiver

SCHEMA = pa.schema([("n", pa.int64()), ("payload", pa.binary(92))])
ROW_BYTES = 100
BATCH_ROWS = 4096
PULL_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Flood:
    """``reads``: bytes a second that the worker takes. ``pause``: it stops from one to the other part of the time.

    ``throttle``: latency and bytes a second of the store; then all but 1000 items are logged before they are
    acknowledged. ``allowance``: what the process may take besides its buffer, and what it had before.
    """

    name: str
    seconds: float
    reads: float
    pause: tuple[float, float] = (0.0, 0.0)
    throttle: tuple[float, float] | None = None
    producers: int = 3
    buffer_bytes: int = 32 << 20
    allowance: int = 64 << 20

    def allowed(self, before: int) -> int:
        # What is written to the log is there up to three times: as it came, put together, and sealed.
        copies = 1 if self.throttle is None else 3
        return before + copies * self.buffer_bytes + self.allowance


@dataclass(frozen=True)
class Outcome:
    """Bytes, rows and seconds. ``wrong`` tells what was missing or came twice; it should be empty."""

    before: int
    peak: int
    allowed: int
    sent: int
    received: int
    seconds: float
    taken: float  # bytes a second that the worker took during the flood
    blocked: float  # seconds that put streams waited for room or for the log, as producers saw it
    waited_for_room: float
    wrong: list[str]

    def __str__(self) -> str:
        return (
            f"memory {self.before >> 20} MB before, at most {self.peak >> 20} MB, allowed {self.allowed >> 20} MB; "
            f"{self.sent} rows sent, {self.received} received in {self.seconds:.1f} s; "
            f"taken {self.taken / 1e6:.1f} MB/s; "
            f"producers blocked {self.blocked:.1f} s, receiver without room {self.waited_for_room:.1f} s"
        )


class Worker:
    """Takes entries at a pace and checks that each producer's numbers come once and without gap."""

    def __init__(self, client: LaneClient) -> None:
        self._client = client
        self.positions: dict[str, int] = {}
        self.rows = 0
        self.wrong: list[str] = []

    def pull(self, wait: float) -> int:
        """Takes what is there; how many bytes that were."""
        entries = self._client.pull(self.positions, max_bytes=PULL_BYTES, wait=wait)
        taken = 0
        for entry in entries:
            expected = self.positions.get(entry.producer, 0)
            if entry.start != expected:
                self.wrong.append(f"{entry.producer}: {entry.start} came, {expected} was next")
            if entry.batch is not None:
                numbers = entry.batch.column(0).to_numpy()
                if not (numbers == np.arange(entry.start, entry.end)).all():
                    self.wrong.append(f"{entry.producer}: other rows at {entry.start}")
                self.rows += len(numbers)
                taken += ROW_BYTES * len(numbers)
            self.positions[entry.producer] = max(entry.end, expected)
        return taken


def run(flood: Flood) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        store = None if flood.throttle is None else Path(folder)
        with ChildReceiver(
            SCHEMA,
            1,
            store=store,
            throttle=flood.throttle,
            allow_items=None if store is None else 1000,
            buffer_bytes=flood.buffer_bytes,
            message_bytes=4 << 20,
        ) as receiver:
            return _Run(flood, receiver).outcome()


class _Run:
    def __init__(self, flood: Flood, receiver: ChildReceiver) -> None:
        self._flood, self._receiver = flood, receiver
        self._before, self._peak = receiver.resident(), 0
        self._began = time.monotonic()
        self._sent: dict[str, int] = {}
        self._blocked: list[float] = []
        self._errors: list[str] = []
        self._done = threading.Event()

    def outcome(self) -> Outcome:
        flood, receiver = self._flood, self._receiver
        watching = threading.Thread(target=self._watch)
        watching.start()
        producing = [threading.Thread(target=self._produce, args=(f"p{n}",)) for n in range(flood.producers)]
        for thread in producing:
            thread.start()
        with LaneClient(receiver.address, 0, incarnation=1, fence=1, access=WORKERS, timeout=120) as client:
            worker = Worker(client)
            taken = self._read_slowly(worker)
            stats = client.stats()
            # Now as fast as it can, until the last producer has its last acknowledgement.
            while any(thread.is_alive() for thread in producing) or worker.pull(0.0):
                worker.pull(0.05)
            client.confirm(worker.positions)
        self._done.set()
        watching.join()
        missing = [f"{name}: {end} sent" for name, end in self._sent.items() if worker.positions.get(name) != end]
        return Outcome(
            before=self._before,
            peak=max(self._peak, receiver.resident(peak=True)),
            allowed=flood.allowed(self._before),
            sent=sum(self._sent.values()),
            received=worker.rows,
            seconds=time.monotonic() - self._began,
            taken=taken / flood.seconds,
            blocked=sum(self._blocked),
            waited_for_room=stats["blocked_seconds"],
            wrong=[*self._errors, *worker.wrong, *missing],
        )

    def _is_over(self) -> bool:
        return time.monotonic() - self._began > self._flood.seconds

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            self._peak = max(self._peak, self._receiver.resident())

    def _produce(self, name: str) -> None:
        payload = pa.array([b"x" * 92] * BATCH_ROWS, pa.binary(92))
        end = 0
        try:
            with Producer(
                self._receiver.address, name, SCHEMA, batch_rows=BATCH_ROWS, unacked_bytes=4 << 20
            ) as producer:
                while not self._is_over():
                    numbers = pa.array(np.arange(end, end + BATCH_ROWS))
                    producer.send(pa.record_batch([numbers, payload], schema=SCHEMA))
                    end += BATCH_ROWS
                self._blocked.append(producer.counters.blocked_seconds)
            self._sent[producer.id] = end
        except Exception as error:  # noqa: BLE001 (told in the outcome)
            self._errors.append(f"{name}: {type(error).__name__}: {error}")

    def _read_slowly(self, worker: Worker) -> int:
        flood, taken, pace = self._flood, 0, _Pace(self._flood.reads)
        while not self._is_over():
            part = (time.monotonic() - self._began) / flood.seconds
            if flood.pause[0] <= part < flood.pause[1]:
                time.sleep(0.02)
                continue
            got = worker.pull(0.1)
            taken += got
            pace.wait(got, self._is_over)
        return taken


class _Pace:
    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()

    def wait(self, nbytes: int, over: Callable[[], bool]) -> None:
        self._free_at = max(self._free_at, time.monotonic()) + nbytes / self._rate
        while (left := self._free_at - time.monotonic()) > 0 and not over():
            time.sleep(min(left, 0.05))
