"""Which signals the driver's JVM heeds: a driver that is asked to stop needs it for its last snapshot."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

#: How long after a signal the same one may be its echo: sent to a group of processes, it comes from the JVM once more.
ECHO_SECONDS = 1.0

_forwarding = False


def leave_stops_to_python(context: SparkContext) -> None:
    """Makes the driver's JVM leave Ctrl-C and SIGTERM to this process, so that it is there while a query is stopped.

    One that this process has started ignores SIGTERM, as PySpark makes it ignore Ctrl-C: supervisors send it to all
    processes at once, and the JVM ends when its standard input does, so that it cannot outlive this process. One that
    has started this process (``spark-submit``) may be all that a supervisor knows: it hands on what it is sent, and
    ends when this process has ended.
    """
    global _forwarding  # noqa: PLW0603 (a process has one JVM)
    gateway: Any = context._gateway
    if gateway is None:
        return
    signals = gateway.jvm.sun.misc
    if getattr(gateway, "proc", None) is not None:
        signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)
        return
    # Commands that need no Spark heed signals as well.
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    for number in (signal.SIGTERM, signal.SIGINT):
        signals.Signal.handle(signals.Signal(number.name.removeprefix("SIG")), _HandedOn(number))
    _forwarding = True


def may_be_echo(seconds: float) -> bool:
    """Whether a signal may be one that this process has heard already, so many seconds before."""
    return _forwarding and seconds < ECHO_SECONDS


class _HandedOn:
    """A handler for the JVM: what it is sent goes to this process."""

    class Java:
        implements = ("sun.misc.SignalHandler",)

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def handle(self, _: Any) -> None:
        # A terminal sends Ctrl-C to this process as well. Heard twice by a program that waits for no query, it would
        # cut off what follows the first.
        if self._number is signal.SIGTERM or getattr(signal.getsignal(self._number), "knows_echoes", False):
            os.kill(os.getpid(), self._number)
