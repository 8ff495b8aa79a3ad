"""Which signals the driver's JVM heeds: a driver that is asked to stop needs it for its last snapshot."""

from __future__ import annotations

from pyspark import SparkContext


def leave_stops_to_python(context: SparkContext) -> None:
    """Makes a JVM that this process has started ignore SIGTERM, as PySpark makes it ignore Ctrl-C.

    Supervisors send it to all processes at once. The JVM ends when its standard input does, so it cannot outlive this
    process, however that ends. One that has started this process (``spark-submit``) is what supervisors know, and heeds
    what it is sent.
    """
    gateway = context._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)
