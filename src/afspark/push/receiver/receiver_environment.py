"""What a receiver has from its process: time, threads, a place to listen, and the end of the process."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from afspark.clock import Clock, SystemClock
from afspark.push.receiver.calls import ReceiverCalls
from afspark.push.receiver.flight_endpoint import FlightEndpoint
from afspark.push.receiver.threads import SystemThreads, Threads
from afspark.push.wire.flight_connection import FlightTransport
from afspark.push.wire.security import Security
from afspark.push.wire.transport import Transport


class Endpoint(Protocol):
    """Where a receiver is called. It listens as soon as it is made."""

    @property
    def port(self) -> int: ...

    def stop(self, timeout: float) -> None:
        """Stops listening, and ends all calls within ``timeout`` seconds."""


class ExitHooks(Protocol):
    """What is called when the process ends: the module ``atexit``, or something like it."""

    def register(self, hook: Callable[[], object], /) -> object: ...

    def unregister(self, hook: Callable[[], object], /) -> object: ...


#: Begins to answer calls at a location, for callers that show what the security, or the workers' secret, demands.
Listen = Callable[[ReceiverCalls, str, Security, str], Endpoint]


@dataclass(frozen=True, kw_only=True)
class ReceiverEnvironment:
    """That of a real process, unless something else is given. ``transport``: how workers reach the endpoint."""

    clock: Clock = field(default_factory=SystemClock)
    threads: Threads = field(default_factory=SystemThreads)
    listen: Listen = FlightEndpoint
    transport: Transport = field(default_factory=FlightTransport)
    exits: ExitHooks = atexit
