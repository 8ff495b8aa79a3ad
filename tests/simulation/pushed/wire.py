"""Receivers without Flight: their own code answers, in the process of whoever calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from afspark.push.receiver.calls import ReceiverCalls
from afspark.push.receiver.log_writer import LogWriter, Planned
from afspark.push.receiver.receiver_environment import ReceiverEnvironment
from afspark.push.wire.messages import Message
from afspark.push.wire.push_errors import ReceiverUnreachable
from afspark.push.wire.security import Security
from afspark.push.wire.transport import Headers
from afspark.push.wire.worker_messages import EntryTag, Pull
from afspark.store import Store
from afspark.store.base import SubStore
from afspark.store.outage import WaitingStore
from tests.simulation.pushed.world import PushedWorld, ReceiverKilled
from tests.simulation.storage import MemoryStore, WrittenAtOnce
from tests.simulation.world import world


def _here() -> PushedWorld:
    here = world()
    assert isinstance(here, PushedWorld)
    return here


class SimulatedEndpoint:
    """Stands for `FlightEndpoint`: the receiver answers in the process of whoever calls."""

    def __init__(self, calls: ReceiverCalls, location: str, security: Security, worker_secret: str) -> None:
        self.calls, self.context = calls, calls.context
        here = _here()
        scheme, _, port = location.rpartition(":")
        self.port = int(port) or 7000 + len(here.endpoints)
        self.address = f"{scheme}:{self.port}"
        self.alive = True
        self._written: dict[int, Planned] = {}
        here.endpoints.append(self)

    def act(self, kind: str, message: Message | None) -> Any:
        return self.calls.act(kind, message, lambda: True)

    def pull(self, ticket: Pull) -> list[tuple[pa.RecordBatch, EntryTag]]:
        return list(self.calls.pull(ticket, lambda: self.alive))

    def stop(self, timeout: float) -> None:
        self.alive = False

    def die(self) -> None:
        """What it was writing may be there, or not."""
        self.alive = False
        for number, planned in self._written.items():
            if _here().chance("a dead receiver's write lands") < 0.5:
                writer = self.context.lanes[number].writer
                assert writer is not None
                with _here().in_peace():
                    writer.log.append([record for _, record in planned])
        self._written = {}

    def work(self) -> None:
        """What the threads of its lanes do: write to the log in two moves, and delete what nobody needs."""
        here = _here()
        for number, service in self.context.lanes.items():
            writer = service.writer
            if writer is None:
                continue
            planned = self._written.pop(number, None)
            if planned is None:
                planned = writer.plan()
                if planned and here.chance("a log write takes its time") < 0.4:
                    self._written[number] = planned
                    continue
            if planned:
                self._write(writer, planned)
            elif here.chance("a receiver deletes") < 0.2:
                writer.delete()

    def _write(self, writer: LogWriter, planned: Planned) -> None:
        here = _here()
        here.receiver_at_work = True
        try:
            writer.write(planned)
        except ReceiverKilled:
            self.alive = False
            here.dying = False
        finally:
            here.receiver_at_work = False


class SimulatedConnection:
    """Stands for a connection over Flight: a call may never arrive, or its answer may not."""

    def __init__(self, address: str) -> None:
        self._address = address

    def act(self, kind: str, message: Message | None, answer: type[Message], *, seconds: float) -> Any:
        return self._called(kind, lambda endpoint: endpoint.act(kind, message))

    def pull(self, ticket: Pull, *, seconds: float) -> Any:
        return self._called("get", lambda endpoint: endpoint.pull(ticket))

    def close(self) -> None: ...

    def _called(self, kind: str, call: Callable[[SimulatedEndpoint], Any]) -> Any:
        here = _here()
        here.point(f"call {kind}")
        here.now += here.call_seconds
        if kind == "get":
            here.live()
        found = [one for one in here.endpoints if one.address == self._address and one.alive]
        if not found:
            raise ReceiverUnreachable("Nobody answers.", address=self._address)
        answer = call(found[-1])
        here.point(f"answer {kind}")
        if not found[-1].alive:
            raise ReceiverUnreachable("It died before it could answer.", address=self._address)
        return answer


class SimulatedTransport:
    def connect(self, address: str, *, root_certs: bytes | None, headers: Headers) -> SimulatedConnection:
        return SimulatedConnection(address)


class Condition:
    """Stands for a lock and what waits for it: there is one thread, and others act while it waits."""

    def __init__(self, lock: object = None) -> None: ...

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *error: object) -> None: ...

    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...

    def notify(self) -> None: ...

    def notify_all(self) -> None: ...

    def set(self) -> None: ...

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float | None = None) -> bool:
        here = _here()
        here.now += seconds or 0.0
        here.live()
        return False


class Idle:
    """Stands for a thread whose work is done elsewhere."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def start(self) -> None: ...

    def join(self, seconds: float | None = None) -> None: ...

    def is_alive(self) -> bool:
        return False


class OneThread:
    """Stands for the threads of receivers: what would end by itself is done at once, loops are run by `work`."""

    def lock(self) -> Any:
        return Condition()

    def condition(self, lock: object) -> Any:
        return Condition()

    def event(self) -> Any:
        return Condition()

    def start(self, work: Callable[[], object], name: str) -> None:
        work()

    def start_loop(self, work: Callable[[], object], name: str) -> Callable[[], None]:
        return lambda: None


class PushedClock:
    """The clock of the host at work."""

    def time(self) -> float:
        return _here().wall()

    def monotonic(self) -> float:
        return world().now

    def sleep(self, seconds: float) -> None:
        _here().sleep(seconds)


class NoExit:
    """Stands for ``atexit``."""

    def register(self, hook: Callable[[], object], /) -> None: ...

    def unregister(self, hook: Callable[[], object], /) -> None: ...


def simulated_environment() -> ReceiverEnvironment:
    """What receivers in the world at work are given."""
    return ReceiverEnvironment(
        clock=PushedClock(),
        threads=OneThread(),
        listen=SimulatedEndpoint,
        transport=SimulatedTransport(),
        exits=NoExit(),
    )


class SlowWrite:
    """Implements `BackgroundWrite`: it has ended when somebody insists, or when chance has it so.

    If its process dies first, the object may be there, or be torn, or come much later, or never.
    """

    def __init__(self, store: Store, name: str, data: bytes) -> None:
        self._args, self._done = (store, name, data), False
        self.failure: BaseException | None = None
        _here().under_way.append(self)
        _here().shift_clock()

    def wait(self, seconds: float | None = None) -> bool:
        here = _here()
        if not self._done and not here.dying and (seconds is None or here.chance("a backup is durable") < 0.5):
            self._done = True
            if self in here.under_way:
                here.under_way.remove(self)
            self.failure = WrittenAtOnce(*self._args).failure
        return self._done

    def orphan(self) -> None:
        here = _here()
        store, name, data = self._args
        chance = here.chance("a dead worker's write lands")
        if chance < 0.3:
            _land(store, name, data)
        elif chance < 0.5:
            _land(store, name, data[: int(len(data) * chance)])
        elif chance < 0.7:
            here.late.append(lambda: _land(store, name, data))


def _land(store: Store, name: str, data: bytes) -> None:
    """An object is there, whoever had written it."""
    while isinstance(store, SubStore | WaitingStore):
        name = f"{store._folder}/{name}" if isinstance(store, SubStore) else name
        store = store._inner
    assert isinstance(store, MemoryStore)
    store.objects[name] = data
