"""A model server on the host of an executor, as the driver sees it."""

from __future__ import annotations

import contextlib
from functools import partial

from afspark.cluster.cluster import Cluster
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import ExchangeFailed
from afspark.task.server_starting import start_server


class HostedServer:
    """Starts a model server for ``size`` cells on ``host``, or on another one if that has gone meanwhile; `StageFailed`
    if nobody could.
    """

    def __init__(self, cluster: Cluster, host: str, size: int, *, secret: str) -> None:
        ((self.address, self.pid),) = cluster.try_on({0: host}, partial(start_server, size, secret))
        self._secret = secret

    @property
    def lives(self) -> bool:
        try:
            with contextlib.closing(ServerCalls(self.address, self._secret)) as calls:
                calls.ping()
        except ExchangeFailed:
            return False
        return True

    def close(self) -> None:
        # One that is gone needs not be told.
        with contextlib.suppress(ExchangeFailed), contextlib.closing(ServerCalls(self.address, self._secret)) as calls:
            calls.end()
