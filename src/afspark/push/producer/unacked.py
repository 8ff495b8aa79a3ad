"""What a producer has sent and nobody has acknowledged: pure bookkeeping, no threads, no clock, no I/O.

A producer's session numbers what it sends to each lane from 0; an acknowledgement covers everything of its lane
below a number. So what is unacknowledged on a lane is one range, and what was lost can be told exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from afspark.push.wire.messages import BatchTag, Ends, PunctuationMark, Receipts
from afspark.push.wire.push_errors import PushError, UnknownLane, WireError


@dataclass(slots=True)
class Piece:
    """One message to a lane. ``row``: the number of its first row among all rows of the session."""

    lane: int
    start: int
    span: int
    order: int
    row: int
    batch: Any
    size: int
    punctuation: PunctuationMark | None = None
    written: float | None = None
    """When it was last handed to the connection; None if never."""

    @property
    def end(self) -> int:
        return self.start + self.span

    @property
    def rows(self) -> int:
        return 0 if self.punctuation is not None else self.span

    @property
    def tag(self) -> bytes:
        return BatchTag(self.lane, self.start, self.punctuation).to_bytes()

    def after(self, end: int) -> Piece:
        """What is left of it above number ``end``."""
        cut = end - self.start
        rest = self.batch.slice(cut)
        return Piece(self.lane, end, self.span - cut, self.order, self.row + cut, rest, rest.nbytes, None, self.written)


@dataclass(frozen=True)
class Lost:
    """What was never acknowledged: it may have arrived, but nobody promised that.

    ``lanes``: per lane the range of sequence numbers; ``rows``: ranges of row numbers, counted from the first row the
    producer was given; ``items``: how many rows that are; ``punctuations``: per lane one.
    """

    lanes: dict[int, tuple[int, int]] = field(default_factory=dict)
    rows: tuple[tuple[int, int], ...] = ()
    items: int = 0
    punctuations: int = 0

    def __bool__(self) -> bool:
        return bool(self.lanes)

    def __str__(self) -> str:
        if not self:
            return "nothing"
        lanes = ", ".join(f"lane {lane}: {start}-{end - 1}" for lane, (start, end) in sorted(self.lanes.items()))
        marks = f" and {self.punctuations} punctuations" if self.punctuations else ""
        return f"{self.items} items{marks} ({lanes})"


class NotAcknowledged(PushError):
    """Not everything was acknowledged in time. Fields: ``items``, ``lost`` (a `Lost`), ``address``."""


class Unacked:
    """The unacknowledged pieces of a session. ``rows`` of all it ever gave out; ``items``, ``bytes`` of those kept."""

    def __init__(self) -> None:
        self._pieces: dict[int, deque[Piece]] = {}
        self._next: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        #: what proves the newest acknowledgement of each lane
        self._receipts: dict[int, str] = {}
        self._order = 0
        self.rows = 0
        self.items = self.bytes = 0

    @property
    def acked(self) -> Ends:
        """Per lane the end of what was acknowledged; lanes with nothing are left out."""
        return {lane: end for lane, end in self._acked.items() if end}

    @property
    def receipts(self) -> Receipts:
        """Per lane what proves that to a later receiver."""
        return dict(self._receipts)

    def has_room(self, rows: int, *, items: float, size: int, bytes_limit: float) -> bool:
        """Whether another piece may be given out; one always may if there is none."""
        return not self.items or (self.items + rows <= items and self.bytes + size <= bytes_limit)

    def admit(self, lane: int, batch: Any, size: int, punctuation: PunctuationMark | None = None) -> Piece:
        """Numbers another piece and keeps it."""
        start = self._next.setdefault(lane, 0)
        span = batch.num_rows if punctuation is None else 1
        piece = Piece(lane, start, span, self._order, self.rows, batch, size, punctuation)
        self._order += 1
        self.rows += piece.rows
        self._next[lane] = piece.end
        self._pieces.setdefault(lane, deque()).append(piece)
        self.items += span
        self.bytes += size
        return piece

    @property
    def written(self) -> bool:
        """Whether some of it was handed to a connection, so that it may have arrived."""
        return any(piece.written is not None for pieces in self._pieces.values() for piece in pieces)

    def renumbered(self) -> Unacked:
        """What is unacknowledged as the first that another session sends, to the same lanes."""
        again = Unacked()
        for piece in self.pending(self._pieces):
            piece.start = again._next.get(piece.lane, 0)
            again._next[piece.lane] = piece.end
            again._pieces.setdefault(piece.lane, deque()).append(piece)
        again._order, again.rows, again.items, again.bytes = self._order, self.rows, self.items, self.bytes
        return again

    def holds(self, piece: Piece) -> bool:
        """Whether some of it is unacknowledged."""
        return any(each.order == piece.order for each in self._pieces.get(piece.lane, ()))

    def acknowledge(self, lane: int, end: int, receipt: str = "") -> list[Piece]:
        """The pieces below ``end`` of that lane, which are forgotten."""
        if end > self._next.get(lane, 0):
            raise WireError(f"Lane {lane} acknowledged {end}, but {self._next.get(lane, 0)} were sent.", what="end")
        released: list[Piece] = []
        pieces = self._pieces.get(lane, deque())
        while pieces and pieces[0].end <= end:
            released.append(pieces.popleft())
        if end >= self._acked.get(lane, 0):
            self._acked[lane], self._receipts[lane] = end, receipt
        if pieces and pieces[0].start < end:
            whole = pieces[0]
            pieces[0] = whole.after(end)
            self.bytes += pieces[0].size - whole.size
            self.items -= end - whole.start
        self.items -= sum(piece.span for piece in released)
        self.bytes -= sum(piece.size for piece in released)
        return released

    def pending(self, lanes: Iterable[int]) -> list[Piece]:
        """Everything to send again, in the order in which it was sent. UnknownLane if a lane of it is gone."""
        served = sorted(lanes)
        gone = [lane for lane, pieces in self._pieces.items() if pieces and lane not in served]
        if gone:
            raise UnknownLane(
                f"The receiver has lanes {served} now; items for lane {gone[0]} are unacknowledged.",
                remedy="Start it again with the lanes it had.",
                lane=gone[0],
                lanes=served,
            )
        return sorted((piece for pieces in self._pieces.values() for piece in pieces), key=lambda piece: piece.order)

    def lost(self) -> Lost:
        """What would be lost if the producer ended now."""
        pieces = self.pending(self._pieces)
        rows: list[tuple[int, int]] = []
        for piece in pieces:
            if not piece.rows:
                continue
            if rows and rows[-1][1] == piece.row:
                rows[-1] = (rows[-1][0], piece.row + piece.rows)
            else:
                rows.append((piece.row, piece.row + piece.rows))
        return Lost(
            lanes={lane: (held[0].start, held[-1].end) for lane, held in self._pieces.items() if held},
            rows=tuple(rows),
            items=sum(piece.rows for piece in pieces),
            punctuations=sum(piece.punctuation is not None for piece in pieces),
        )
