"""Failures of whole hosts as data: after which batch, at which moment, which host; and when it comes back. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from afspark.errors import UsageError

AWAY_SECONDS = 3.0
"""How long a host is switched off. After that it starts, which takes some seconds as well."""


@dataclass(frozen=True, order=True)
class PlannedFailure:
    """Once ``batch`` batches are done, and another ``share`` of the time that one takes, host number ``host`` fails."""

    batch: int
    share: float
    host: int


def seeded_host_failures(count: int, *, batches: int, hosts: int, seed: int) -> tuple[PlannedFailure, ...]:
    """``count`` failures at random moments of a stream of ``batches``, spread over it.

    The stream is cut into as many parts of equal length as there are failures, and each part has one, because a host
    takes a while to come back. None happens in the first batch.
    """
    if count > batches - 1:
        raise UsageError(
            f"{count} failures do not fit into {batches} batches.",
            remedy="Use a smaller --batch-size or a larger input.",
            failures=count,
            batches=batches,
        )
    draw = random.Random(seed)
    parts = [1 + (batches - 1) * part // count for part in range(count + 1)] if count else []
    return tuple(
        PlannedFailure(draw.randrange(parts[part], parts[part + 1]), draw.random(), draw.randrange(hosts))
        for part in range(count)
    )


@dataclass(frozen=True)
class KillHost:
    """A host is to be killed now, as the failure planned at ``planned`` says."""

    host: str
    planned: PlannedFailure


@dataclass(frozen=True)
class StartHost:
    """A host that was away is to be started again."""

    host: str


@dataclass
class FailureSchedule:
    """When which host is killed and started again, given how a query goes.

    A failure is put off while it would take the last host that has an executor: the others have to be back first, and
    a batch has to be done with them, so that there was time for a second copy to move there. A single host is killed
    all the same.
    """

    hosts: Sequence[str]
    failures: Sequence[PlannedFailure]
    away_seconds: float = AWAY_SECONDS
    #: from when on the next failure is due
    _due: float | None = None
    _begun: int = 0
    #: when hosts that are away start again
    _away: dict[str, float] = field(default_factory=dict)
    #: hosts that were started again, and how many batches were done when their executors were there
    _returned: dict[str, int | None] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """How many failures have still to happen."""
        return len(self.failures) - self._begun

    def is_idle(self, batches: int) -> bool:
        """Whether nothing can be due, whatever the hosts do."""
        due = self.left and batches >= self.failures[self._begun].batch
        return not due and not self._away and None not in self._returned.values()

    def actions(
        self, now: float, *, batches: int, batch_seconds: float, alive: Collection[str], killing: bool = True
    ) -> list[KillHost | StartHost]:
        """What is to be done now. ``batches`` are done, each took about ``batch_seconds``, and the hosts ``alive``
        have executors. Without ``killing``, hosts come back and none fails.
        """
        found: list[KillHost | StartHost] = []
        for host in [host for host, back in self._away.items() if now >= back]:
            del self._away[host]
            self._returned[host] = None
            found.append(StartHost(host))
        for host, since in self._returned.items():
            if since is None and host in alive:
                self._returned[host] = batches
        victim = self._victim(now, batches, batch_seconds, alive) if killing and self.left else None
        if victim is not None:
            found.append(KillHost(victim, self.failures[self._begun]))
            self._begun += 1
            self._due = None
            self._returned.pop(victim, None)
            self._away[victim] = now + self.away_seconds
        return found

    def _victim(self, now: float, batches: int, batch_seconds: float, alive: Collection[str]) -> str | None:
        planned = self.failures[self._begun]
        if batches < planned.batch:
            return None
        if self._due is None:
            self._due = now + planned.share * batch_seconds
        usable = [host for host in self.hosts if self._is_usable(host, batches, alive)]
        if now < self._due or len(usable) < min(2, len(self.hosts)):
            return None
        # The one that was drawn, or the next one that is there.
        later = [*self.hosts[planned.host :], *self.hosts[: planned.host]]
        return next(host for host in later if host in usable)

    def _is_usable(self, host: str, batches: int, alive: Collection[str]) -> bool:
        if host not in alive or host in self._away:
            return False
        since = self._returned.get(host, -1)
        return since is not None and batches > since
