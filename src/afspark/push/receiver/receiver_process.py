"""A receiver at work for a query, in whatever process it runs: opened, announced, closed."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from afspark.errors import UsageError
from afspark.push.consumer.certificates import check_certificate, check_reachable
from afspark.push.receiver.limits import Limits
from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from afspark.push.receiver.receiver_environment import ReceiverEnvironment
from afspark.push.receiver.restart_count import RestartCount
from afspark.push.wire.announcements import ADDRESSES, Announced
from afspark.push.wire.messages import Allowance, Positions
from afspark.push.wire.security import Security, new_secret
from afspark.store import Store, seal
from afspark.store.claims import ClaimId, Claims

LOG = logging.getLogger("afspark")


@dataclass(frozen=True, kw_only=True)
class ReceiverPlan:
    """What a receiver is to be. ``items``, ``seconds`` and ``unacked`` are those before any failure. ``listed``: the
    recorded positions of its lanes. ``reached_at``: what to call its host, if not ``host``.
    """

    number: int
    lanes: tuple[int, ...]
    schema: pa.Schema
    host: str
    port: int
    items: float
    seconds: float | None
    unacked: float
    keeps_upstream: bool = False
    logs_first: bool = False
    limits: Limits = field(default_factory=Limits)
    security: Security | None = None
    worker_secret: str = field(default_factory=new_secret, repr=False)
    listed: Mapping[int, Positions] = field(default_factory=dict)
    reached_at: str = ""
    #: names the driver's start that it belongs to
    opened_by: str = ""

    def allow(self, failures: int) -> Allowance:
        """What a lane may hold without backup after so many failures of its receiver."""
        seconds = None if self.seconds is None else math.ldexp(self.seconds, -failures)
        return Allowance(math.ldexp(self.items, -failures) if math.isfinite(self.items) else self.items, seconds)


class ReceiverProcess:
    """One receiver, its log and the count of its restarts, below a folder of the backup store."""

    def __init__(self, plan: ReceiverPlan, store: Store, environment: ReceiverEnvironment | None = None) -> None:
        self.plan, self._store, self._environment = plan, store, environment or ReceiverEnvironment()
        self._restarts = RestartCount(store.below(f"tenure-{plan.number:05d}"))
        self._receiver: Receiver | None = None
        self.announced: Announced | None = None

    def open(self) -> Announced:
        """Starts to receive, and says where. `UsageError` if workers could not connect to it."""
        plan = self.plan
        check_certificate(plan.security, plan.reached_at or plan.host)
        ended = self._restarts.open(lambda failures: plan.allow(failures).items)
        failures = ended.failures
        allow = plan.allow(failures)
        self._receiver = Receiver(
            ReceiverConfig(
                schema=plan.schema,
                lanes=plan.lanes,
                host=plan.host,
                port=plan.port,
                unacked=math.ldexp(plan.unacked, -failures) if math.isfinite(plan.unacked) else plan.unacked,
                allow_items=allow.items,
                allow_seconds=allow.seconds,
                ack_when_confirmed=plan.keeps_upstream,
                log_first=plan.logs_first,
                limits=plan.limits,
                security=plan.security,
                worker_secret=plan.worker_secret,
                listed=plan.listed,
                store=item_log(self._store),
            ),
            self._environment,
        )
        address = self._receiver.start(reached_at=plan.reached_at)
        if plan.security is not None and plan.security.tls:
            try:
                check_reachable(address, plan.lanes[0], self._receiver.worker_access)
            except UsageError:
                self.close()
                raise
        self.announced = Announced(plan.number, address, plan.lanes, failures, ended.lost, plan.opened_by)
        self._announce(self.announced)
        return self.announced

    def close(self) -> None:
        """Stops receiving; what was acknowledged and not taken yet is durable afterwards, or its end is a failure."""
        if self._receiver is not None:
            saved = self._receiver.stop()
            self._receiver = None
            if saved:
                self._restarts.close()
            else:
                LOG.warning(
                    "Receiver %d could not write all acknowledged items to its log: its end counts as a failure.",
                    self.plan.number,
                )

    def crash(self, listed: Mapping[int, Positions]) -> None:
        """What the death of its process would do: only the log remains. It comes back where producers look for it."""
        if self._receiver is not None:
            self._receiver.stop(save=False)
            self.plan = replace(self.plan, port=self._receiver.port, listed=listed)
            self.open()

    def stats(self) -> dict[str, Any]:
        return self._receiver.stats() if self._receiver is not None else {}

    def _announce(self, announced: Announced) -> None:
        claims = Claims(self._store, f"{ADDRESSES}/{announced.number:05d}", ClaimId, who="receivers")
        claims.take(seal({"kind": "address", "announced": announced.to_json()}, {}), drop_older=True)


def item_log(store: Store) -> Store:
    """Where the receivers of a source keep items, below its folder."""
    return store.below("items")
