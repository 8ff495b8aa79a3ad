"""What is measured of a unit while it runs and when it recovers."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple


class Quantity(StrEnum):
    """What a measurement is of: ``seconds`` that something took, an ``amount``, or an amount in so many seconds."""

    #: bytes that a restore would read, as of a checkpoint, shipped or stored; the time is that of its capture, and it
    #: is recorded once it is safe
    CHECKPOINT_SIZE = "checkpoint_size"
    #: bytes that checkpoints wrote, and seconds that the store took for them
    CHECKPOINT_WRITE = "checkpoint_write"
    #: bytes of a checkpoint, and seconds from its capture until a recovery could count on it
    CHECKPOINT_SAFE = "checkpoint_safe"
    #: seconds of CPU that making a checkpoint took
    CHECKPOINT_CPU = "checkpoint_cpu"
    #: bytes of code and static data that a deployed replica takes
    STATIC_SIZE = "static_size"
    #: items that came, and bytes that came and went, within so many seconds; 0 if none did
    RECEIVED = "received"
    RECEIVED_BYTES = "received_bytes"
    SENT_BYTES = "sent_bytes"
    #: items that were processed in so many seconds of work
    PROCESSED = "processed"
    #: items that recoveries have replayed, and in how many seconds
    REPLAYED = "replayed"
    #: seconds of CPU (the amount) that the primary took within so many seconds
    CPU = "cpu"
    #: seconds that steps took, in recoveries, transitions and moves
    WAIT = "wait"
    PROMOTION = "promotion"
    DEPLOY = "deploy"
    WIRE_SEND = "wire_send"
    WIRE_RECEIVE = "wire_receive"
    #: bytes that a recovery read, and in how many seconds
    READ = "read"
    #: seconds by which a batch was late because one of two active replicas failed
    TAKEOVER = "takeover"

    @property
    def is_of_cluster(self) -> bool:
        """Whether it tells as much of other units of the cluster: a time that does not depend on a unit's load."""
        return self in _OF_CLUSTER


_OF_CLUSTER = frozenset(
    {
        Quantity.WAIT,
        Quantity.PROMOTION,
        Quantity.DEPLOY,
        Quantity.WIRE_SEND,
        Quantity.WIRE_RECEIVE,
        Quantity.READ,
        Quantity.TAKEOVER,
    }
)


class FailureKind(StrEnum):
    """What has happened to a primary. As a measurement: seconds until the driver knew, and (the amount) after
    how many it was to know at most."""

    PROCESS_KILLED = "process_killed"
    HOST_LOST = "host_lost"
    FROZEN = "frozen"
    NETWORK_CUT = "network_cut"

    @property
    def is_silent(self) -> bool:
        """Whether no connection closes: the driver finds out when an answer is overdue, and not sooner."""
        return self in (FailureKind.FROZEN, FailureKind.NETWORK_CUT)


Measured = Quantity | FailureKind


def measured(name: str) -> Measured:
    """The quantity or kind of failure of that name; ValueError for any other."""
    return FailureKind(name) if name in list(FailureKind) else Quantity(name)


class Measurement(NamedTuple):
    """One measurement; ``at`` is when it ended, in seconds since 1970. They sort by it."""

    at: float
    seconds: float = 0.0
    amount: float = 0.0

    @classmethod
    def of(cls, at: float, seconds: float, amount: float) -> Measurement:
        """A measurement of plain floats; ValueError if it is negative or not finite, TypeError for no number."""
        found = cls(float(at), float(seconds), float(amount))
        if not (math.isfinite(found.at) and 0 <= found.seconds < math.inf and 0 <= found.amount < math.inf):
            raise ValueError(f"measurements are finite and not negative: {found}")
        return found
