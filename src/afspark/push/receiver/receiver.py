"""The receiver: an Arrow Flight endpoint that takes pushed items, acknowledges them and keeps them for workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from afspark.errors import UsageError, first_line
from afspark.push.receiver.call_context import CallContext
from afspark.push.receiver.calls import ReceiverCalls
from afspark.push.receiver.item_log import ItemLog
from afspark.push.receiver.lane import Lane
from afspark.push.receiver.lane_service import LaneService
from afspark.push.receiver.limits import Limits
from afspark.push.receiver.producer_registry import Registry
from afspark.push.receiver.receiver_environment import Endpoint, ReceiverEnvironment
from afspark.push.receiver.session_listing import KEPT_AWAY, Listing
from afspark.push.receiver.sessions import Sessions
from afspark.push.wire.addresses import bracketed
from afspark.push.wire.messages import Allowance, Positions
from afspark.push.wire.security import Access, Security, check_exposure, new_secret
from afspark.store import Store


@dataclass(frozen=True, kw_only=True)
class ReceiverConfig:
    """What a receiver is given. Picklable, so that it can be sent to where the receiver runs.

    ``lanes``: the workers it serves. ``unacked``: γ, told to producers. ``allow_items`` and ``allow_seconds``: l, the
    items per lane that may be acknowledged without backup, and how old they may be, until a worker says otherwise.
    ``store``: the folder of the item log; without one nothing is backed up. ``ack_when_confirmed``: producers keep
    everything until a worker has confirmed it, and nothing is backed up here. ``log_first``: everything is in the log
    before a worker gets it. ``worker_secret``: what workers show. ``listed``: the positions of each lane that are
    recorded, so that sessions which are over are recognised before a worker comes.
    """

    schema: pa.Schema
    lanes: tuple[int, ...]
    store: Store | None = None
    host: str = "127.0.0.1"
    port: int = 0
    unacked: float = math.inf
    allow_items: float = math.inf
    allow_seconds: float | None = None
    ack_when_confirmed: bool = False
    log_first: bool = False
    limits: Limits = field(default_factory=Limits)
    security: Security | None = None
    worker_secret: str = field(default_factory=new_secret, repr=False)
    listed: Mapping[int, Positions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.lanes or len(set(self.lanes)) != len(self.lanes) or min(self.lanes) < 0:
            raise UsageError("A receiver needs lanes: different numbers >= 0.", lanes=self.lanes)
        for name in ("unacked", "allow_items", "allow_seconds"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise UsageError(f"{name} must be >= 0, not {value!r}.", **{name: value})
        for column in self.schema:
            if _has_dictionary(column.type):
                raise UsageError(
                    f"Column {column.name!r} is of type {column.type}: columns with dictionaries cannot be handed out.",
                    remedy="Give the column the type of its values; producers may cast to it.",
                    column=column.name,
                )
        backs_up = not self.ack_when_confirmed and (self.allow_items < math.inf or self.allow_seconds is not None)
        if backs_up and self.store is None:
            raise UsageError(
                "Items that must be backed up need a backup store.",
                remedy="Give a store, or allow any number of items to be lost.",
                allow_items=self.allow_items,
            )
        check_exposure(self.host, self.security)


def _has_dictionary(kind: pa.DataType) -> bool:
    # Flight's stream of a generator leaves dictionaries out, so a worker could not read what was acknowledged.
    return pa.types.is_dictionary(kind) or any(
        _has_dictionary(kind.field(place).type) for place in range(kind.num_fields)
    )


class Receiver:
    """Lives in the process that makes it, in threads of its own.

    ``start`` listens and returns the address; ``stop`` ends it without losing anything that was acknowledged, if
    there is a log. It can be started once. It stops by itself when it finds that another receiver has taken a lane of
    its own, at the latest before it acknowledges more than the allowance.
    """

    def __init__(self, config: ReceiverConfig, environment: ReceiverEnvironment | None = None) -> None:
        self._config = config
        self._environment = environment = environment or ReceiverEnvironment()
        clock, threads = environment.clock, environment.threads
        self._lanes: dict[int, LaneService] = {}
        registry = Registry(config.limits, self._lanes, clock)
        sessions = Sessions.open(config.store)
        for number in config.lanes:
            lane = Lane(
                number,
                Allowance(config.allow_items, config.allow_seconds),
                config.limits.lane_bytes(len(config.lanes)),
                logs=config.store is not None,
                ack_when_confirmed=config.ack_when_confirmed,
                log_first=config.log_first,
                listing=Listing(sessions.start, config.listed.get(number), keep=KEPT_AWAY + config.limits.producers),
            )
            log = None if config.store is None else ItemLog(config.store, number, config.schema)
            self._lanes[number] = LaneService(
                lane, log, registry.deliver, self._step_down, clock=clock, threads=threads
            )
        self._context = CallContext(
            config.schema, self._lanes, registry, sessions, config.limits, config.unacked, clock, threads.event()
        )
        self._endpoint: Endpoint | None = None
        self._address = ""
        self._port = 0
        self._started = clock.time()
        self._stop_lock = threads.lock()
        self._saved = True

    @property
    def address(self) -> str:
        """Where it listens, as Flight clients take it; empty before `start`."""
        return self._address

    @property
    def port(self) -> int:
        return self._port

    @property
    def worker_access(self) -> Access:
        """What its workers show and trust."""
        security = self._config.security or Security()
        return Access(
            root_certs_file=security.cert_file,
            worker_secret=self._config.worker_secret,
            transport=self._environment.transport,
        )

    def start(self, *, reached_at: str = "") -> str:
        """The address, with ``reached_at`` for a host if given. What the item log holds is loaded, then it listens."""
        if self._endpoint is not None:
            raise UsageError("A receiver can be started once.", remedy="Make a new one.")
        config = self._config
        security = config.security or Security()
        scheme = "grpc+tls" if security.tls else "grpc"
        host = bracketed(config.host)
        for lane in self._lanes.values():
            lane.start()
        try:
            self._endpoint = self._environment.listen(
                ReceiverCalls(self._context, self.stats),
                f"{scheme}://{host}:{config.port}",
                security,
                config.worker_secret,
            )
        except (pa.ArrowException, OSError) as error:
            self._end_lanes(save=False)
            raise UsageError(
                f"The receiver cannot listen at {host}:{config.port}: {first_line(error)}.",
                remedy="Choose a free port, 0 for any, and an address of this host.",
                host=config.host,
                port=config.port,
            ) from error
        self._port = self._endpoint.port
        self._address = f"{scheme}://{bracketed(reached_at) or host}:{self._port}"
        # A process with connected producers could not end otherwise.
        self._environment.exits.register(self.stop)
        return self._address

    def stop(self, *, save: bool = True, timeout: float = 10.0) -> bool:
        """Stops listening and ends all calls; whether everything that ``save`` asks for is durable.

        ``save``: what was acknowledged and is neither confirmed nor logged goes to the log first. Harmless if it
        was stopped already.
        """
        with self._stop_lock:
            endpoint, self._endpoint = self._endpoint, None
            if endpoint is not None:
                self._environment.exits.unregister(self.stop)
                self._context.stopping.set()
                self._saved = self._end_lanes(save=save)
                endpoint.stop(timeout)
            return self._saved

    def stats(self) -> dict[str, Any]:
        """Counters as JSON: of the receiver, and per lane under ``lanes``."""
        lanes = {number: lane.stats() for number, lane in self._lanes.items()}
        summed = ("accepted", "acknowledged", "duplicates", "logged", "released", "pending_items", "pending_bytes")
        return {
            **self._context.registry.counts(),
            **{name: sum(lane[name] for lane in lanes.values()) for name in summed},
            "blocked_seconds": sum(lane["blocked_seconds"] for lane in lanes.values()),
            "refused": dict(self._context.refused),
            "torn": [name for lane in lanes.values() for name in lane["torn"]],
            "damaged": [name for lane in lanes.values() for name in lane["damaged"]],
            "seconds": self._environment.clock.time() - self._started,
            "lanes": {str(number): lane for number, lane in lanes.items()},
        }

    def _step_down(self) -> None:
        """Another receiver has a lane of this one. Ending all calls makes producers look for it."""
        self._environment.threads.start(self.stop, "afspark-receiver-replaced")

    def _end_lanes(self, *, save: bool) -> bool:
        # Also where any loss is allowed: an orderly end is no failure.
        save = save and not self._config.ack_when_confirmed
        saved = [lane.stop(save=save) for lane in self._lanes.values()]
        return all(saved)
