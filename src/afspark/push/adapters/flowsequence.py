"""How much of what an exporter sent did not arrive, by the sequence numbers of its messages."""

from __future__ import annotations

MODULUS = 1 << 32
MOST_BACK = 1000
MOST_AHEAD = 1 << 24


class Sequence:
    """The numbers of one exporter's observation domain; what they count depends on the protocol.

    ``lost`` is what the numbers have advanced by beyond what arrived, so messages that overtake each other, or come
    twice, are no loss. Numbers that go back by more than `MOST_BACK` or ahead by more than `MOST_AHEAD` are those of
    an exporter that began anew: the count goes on from there. ``hits`` are messages that began where another ended.

    >>> sequence = Sequence()
    >>> for number in (0, 10, 40, 20):  # ten each: the one with 30 is missing
    ...     sequence.take(number, 10)
    >>> sequence.lost
    10
    """

    def __init__(self) -> None:
        self._reached: int | None = None
        self._missing = 0
        self._counted = 0
        self.hits = 0

    @property
    def lost(self) -> int:
        return self._counted + max(0, self._missing)

    def take(self, number: int, count: int | None) -> None:
        """A message with that number came, with ``count`` of what is numbered in it; None if nobody knows."""
        gap = 0
        if self._reached is not None:
            gap = (number - self._reached + MODULUS // 2) % MODULUS - MODULUS // 2
        if self._reached is None or count is None or not -MOST_BACK <= gap <= MOST_AHEAD:
            self._counted, self._missing = self.lost, 0
            self._reached = None if count is None else (number + count) % MODULUS
            return
        advance = max(0, gap + count)
        self._reached = (self._reached + advance) % MODULUS
        self._missing += advance - count
        self.hits += gap == 0


class RecordSequence:
    """The numbers of IPFIX, which count data records (RFC 7011, section 3.1).

    They are those before the message. softflowd's are those up to its end, without options records: whichever way fits
    more messages is believed.
    """

    def __init__(self) -> None:
        self._before, self._including = Sequence(), Sequence()

    @property
    def lost(self) -> int:
        return (self._including if self._including.hits > self._before.hits else self._before).lost

    def take(self, number: int, flows: int | None, options: int = 0) -> None:
        """A message with that number came, with so many records of flows, None if nobody knows, and of options."""
        self._before.take(number, None if flows is None else flows + options)
        self._including.take((number - (flows or 0)) % MODULUS, flows)
