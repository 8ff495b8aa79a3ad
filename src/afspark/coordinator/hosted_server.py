"""A model server on the host of an executor, as the driver sees it."""

from __future__ import annotations

import contextlib
from functools import partial

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import ExchangeFailed
from afspark.task.server_starting import kill_server, start_server


class HostedServer:
    """Starts a model server for ``size`` cells on ``host``, or on another one if that has gone meanwhile; `StageFailed`
    if nobody could.
    """

    def __init__(self, cluster: Cluster, host: str, size: int, *, secret: str) -> None:
        ((self.address, self.pid, self._host),) = cluster.try_on({0: host}, partial(start_server, size, secret))
        self._cluster, self._secret = cluster, secret
        self._given_up = False

    @property
    def lives(self) -> bool:
        if self._given_up:
            return False
        try:
            with contextlib.closing(ServerCalls(self.address, self._secret)) as calls:
                calls.ping()
        except ExchangeFailed:
            return False
        return True

    def give_up(self) -> None:
        """Ends a server that does not answer, although its process may be there, unless its host does not answer."""
        self._given_up = True
        if self._host in self._cluster.slots_by_host():
            with contextlib.suppress(StageFailed):
                self._cluster.try_on({0: self._host}, partial(kill_server, self.pid, self._host))

    def close(self) -> None:
        if self._given_up:
            return
        # One that is gone needs not be told.
        with contextlib.suppress(ExchangeFailed), contextlib.closing(ServerCalls(self.address, self._secret)) as calls:
            calls.end()
