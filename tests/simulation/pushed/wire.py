"""Receivers without Flight: their own code answers, in the process of whoever calls."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import flight

from afspark.errors import AfsparkError
from afspark.push.receiver.call_context import CallContext
from afspark.push.receiver.flight_endpoint import FlightEndpoint
from afspark.push.receiver.lane_entries import LaneEntry, LaneItems
from afspark.push.receiver.lane_service import LaneService
from afspark.push.wire.batches import no_rows
from afspark.push.wire.push_errors import to_flight
from afspark.push.wire.worker_messages import Pull
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


class Endpoint:
    """Stands for `FlightEndpoint`: answers the same calls, without a socket."""

    _act, _hello, _bye, _stream = (
        FlightEndpoint._act,
        FlightEndpoint._hello,
        FlightEndpoint._bye,
        FlightEndpoint._stream,
    )

    def __init__(self, context: CallContext, location: str, stats: Callable[[], dict[str, Any]], **_: Any) -> None:
        self._hub, self._stats, self._empty = context, stats, no_rows(context.schema)
        here = _here()
        scheme, _, port = location.rpartition(":")
        self.port = int(port) or 7000 + len(here.endpoints)
        self.address = f"{scheme}:{self.port}"
        self.alive = True
        self._written: dict[int, list[tuple[LaneEntry, LaneItems]]] = {}
        here.endpoints.append(self)

    @property
    def context(self) -> CallContext:
        return self._hub

    def act(self, kind: str, body: Any) -> Any:
        return self._act(kind, body, lambda: True)  # type: ignore[misc, arg-type]

    def get(self, message: Pull) -> list[tuple[pa.RecordBatch, Any]]:
        handouts = self._hub.lane(message.lane).pull(message, lambda: self.alive)
        return list(self._stream(handouts))  # type: ignore[misc, arg-type]

    def shutdown(self) -> None:
        self.alive = False

    def die(self) -> None:
        """What it was writing may be there, or not."""
        self.alive = False
        for number, planned in self._written.items():
            if _here().chance("a dead receiver's write lands") < 0.5:
                log = self._hub.lanes[number]._log
                assert log is not None
                with _here().in_peace():
                    log.append([record for _, record in planned])
        self._written = {}

    def work(self) -> None:
        """What the threads of its lanes do: write to the log in two moves, and delete what nobody needs."""
        here = _here()
        for number, service in self._hub.lanes.items():
            if service._log is None:
                continue
            planned = self._written.pop(number, None)
            if planned is None:
                planned = service._lane.plan(here.now)
                if planned and here.chance("a log write takes its time") < 0.4:
                    self._written[number] = planned
                    continue
            if planned:
                self._write(service, planned)
            elif here.chance("a receiver deletes") < 0.2:
                service._delete()

    def _write(self, service: LaneService, planned: list[tuple[LaneEntry, LaneItems]]) -> None:
        here = _here()
        here.receiver_at_work = True
        try:
            service._write(planned)
        except ReceiverKilled:
            self.alive = False
            here.dying = False
        finally:
            here.receiver_at_work = False


class Action(NamedTuple):
    kind: str
    body: Any


#: What a worker's side of a lane takes from Flight. Messages go as they are: their bytes are another test's.
FLIGHT = SimpleNamespace(Action=Action, Ticket=lambda message: message, FlightCallOptions=lambda **_: None)


class Client:
    """Stands for a Flight client: a call may never arrive, or its answer may not."""

    def __init__(self, address: str) -> None:
        self._address = address

    def do_action(self, action: Action, options: None = None) -> list[Any]:
        answer = self._called(action.kind, lambda endpoint: endpoint.act(action.kind, action.body))
        return [SimpleNamespace(body=SimpleNamespace(to_pybytes=lambda: answer))]

    def do_get(self, ticket: Pull, options: None = None) -> Reader:
        return Reader(self._called("get", lambda endpoint: endpoint.get(ticket)))

    def close(self) -> None: ...

    def _called(self, kind: str, call: Callable[[Endpoint], Any]) -> Any:
        here = _here()
        here.point(f"call {kind}")
        here.now += here.call_seconds
        if kind == "get":
            here.live()
        found = [one for one in here.endpoints if one.address == self._address and one.alive]
        if not found:
            raise flight.FlightUnavailableError("nobody answers")
        try:
            answer = call(found[-1])
        except AfsparkError as error:
            raise to_flight(error) from error
        here.point(f"answer {kind}")
        if not found[-1].alive:
            raise flight.FlightUnavailableError("it died before it could answer")
        return answer


class Reader:
    def __init__(self, chunks: list[tuple[pa.RecordBatch, Any]]) -> None:
        self._chunks = iter(chunks)

    def read_chunk(self) -> Any:
        data, tag = next(self._chunks)
        return SimpleNamespace(data=data, app_metadata=tag)


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


class AtOnce(Idle):
    """Stands for a thread that has ended when it was started."""

    def __init__(self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        self._target(*self._args)


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
