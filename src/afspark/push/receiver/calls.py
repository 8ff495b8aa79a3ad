"""What a receiver answers to the calls of producers and workers: message for message, however they are carried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from afspark.push.receiver.call_context import CallContext
from afspark.push.wire.batches import no_rows
from afspark.push.wire.messages import (
    ATTACH,
    BYE,
    CONFIRM,
    HELLO,
    STATS,
    STOP_LOGGING,
    WAITING,
    Bye,
    Done,
    Hello,
    Message,
    Welcome,
    producer_id,
)
from afspark.push.wire.push_errors import SessionOver, WireError
from afspark.push.wire.security import Role
from afspark.push.wire.worker_messages import (
    Attach,
    Confirm,
    EntryTag,
    LoggingStopped,
    Pull,
    Stats,
    StopLogging,
    Waiting,
)

Alive = Callable[[], bool]


class ReceiverAction(NamedTuple):
    """What an action is for, the message that comes with it, and who may ask for it; None: none, and everybody."""

    about: str
    message: type[Message] | None
    role: Role | None


ACTIONS = {
    HELLO: ReceiverAction("a producer introduces itself", Hello, Role.PRODUCER),
    BYE: ReceiverAction("a producer's session is over", Bye, Role.PRODUCER),
    WAITING: ReceiverAction("whether there is anything for workers", None, None),
    ATTACH: ReceiverAction("a worker takes a lane", Attach, Role.WORKER),
    STOP_LOGGING: ReceiverAction("a worker is about to make entries final", StopLogging, Role.WORKER),
    CONFIRM: ReceiverAction("entries are final", Confirm, Role.WORKER),
    STATS: ReceiverAction("counters as JSON", None, Role.WORKER),
}


def action_of(kind: str) -> ReceiverAction:
    """The action of that name; `WireError` if there is none."""
    if kind not in ACTIONS:
        raise WireError(f"There is no action {kind[:40]!r}.", what="action")
    return ACTIONS[kind]


class ReceiverCalls:
    """Answers calls. ``alive`` tells whether the caller still waits; ``stats`` are the receiver's counters."""

    def __init__(self, context: CallContext, stats: Callable[[], Mapping[str, Any]]) -> None:
        self.context, self._stats = context, stats
        self._empty = no_rows(context.schema)

    def act(self, kind: str, message: Message | None, alive: Alive) -> Message:
        """The answer to an action."""
        match message:
            case Bye():
                return self._bye(message, alive)
            case Hello():
                return self._hello(message)
            case Attach():
                return self.context.lane(message.lane).attach(message)
            case Confirm():
                return self.context.lane(message.lane).confirm(message)
            case StopLogging():
                return LoggingStopped(self.context.lane(message.lane).stop_logging(message))
        if kind == STATS:
            return Stats(self._stats())
        return Waiting(any(lane.waits() for lane in self.context.lanes.values()))

    def pull(self, ticket: Pull, alive: Alive) -> Iterator[tuple[pa.RecordBatch, EntryTag]]:
        """The entries that a worker gets, found now and read by whoever sends them."""
        handouts = self.context.lane(ticket.lane).pull(ticket, alive)
        return (
            (
                self._empty if record.batch is None else record.batch,
                EntryTag(record.producer, record.start, logged, record.punctuation, record.mark),
            )
            for record, logged in handouts
        )

    def _hello(self, hello: Hello) -> Welcome:
        context = self.context
        session = context.enter(hello)
        ends = {number: lane.received(producer_id(hello.producer, session)) for number, lane in context.lanes.items()}
        received = {number: end for number, end in ends.items() if end}
        return Welcome(session, tuple(sorted(context.lanes)), context.unacked, context.largest_batch, received)

    def _bye(self, bye: Bye, alive: Alive) -> Done:
        try:
            self.context.enter(bye)
        except SessionOver:
            return Done()  # it has said so before, and did not hear the answer
        # It ends on all lanes, also on those it does not name.
        for number, lane in self.context.lanes.items():
            lane.finish(bye.id, bye.acked.get(number, 0), alive)
        self.context.registry.leave(bye.id)
        return Done()
