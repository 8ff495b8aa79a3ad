"""``afspark send``: rows from files, standard input or sockets to a receiver, from checks to summary."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType

import pyarrow as pa

from afspark.cli.progressbar import Display, RunProgress, display_for
from afspark.cli.pumping import Pump
from afspark.cli.send_options import SendOptions
from afspark.cli.sendsources import SendSource, counted, source_of
from afspark.cli.signals import heeding_stops
from afspark.errors import AfsparkError
from afspark.push.producer.link import Dial, fetch_schema, may_pass, why_away
from afspark.push.producer.producer import Producer
from afspark.push.producer.punctuating import Punctuator
from afspark.push.wire.push_errors import ReceiverUnreachable
from afspark.push.wire.security import read_token
from afspark.report.wording import bytes_text, number_text, seconds_text

POLL_SECONDS = 0.1
LEAVE_SECONDS = 5.0
"""How long Ctrl-C waits for what is under way."""


@dataclass(frozen=True, kw_only=True)
class Sending(RunProgress):
    """Where sending stands; ``bytes`` of the input, ``items`` acknowledged."""

    taken: int = 0
    resent: int = 0
    bad: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def facts(self) -> str:
        sent = f"{self.items:,} rows acknowledged · {self.taken - self.items:,} under way · {self.resent:,} resent"
        return " · ".join([sent, *counted({"bad": self.bad, **self.left_out})])

    def speed(self, total_bytes: int) -> str:
        if total_bytes:
            return super().speed(total_bytes)
        rate = self.items / self.seconds if self.seconds > 0 else 0.0
        return f"{bytes_text(self.bytes)} · {rate:,.0f} rows/s"


def send(options: SendOptions) -> int:
    """The exit status, when ``options`` are carried out."""
    if not options.debug:
        # What gRPC writes about failed attempts is in the error that ends them.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    token = None if options.token_file is None else read_token(options.token_file).decode()
    dial = Dial(options.address, token, options.tls_ca)
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(_hearing_signals())
        source = source_of(options, stack)
        schema = _schema(dial, options)
        status = _send(options, source, schema, token)
    return 128 + signals[0] if signals else status


@contextlib.contextmanager
def _hearing_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt; which of them came."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    with heeding_stops(hear):
        yield heard


def _send(options: SendOptions, source: SendSource, schema: pa.Schema, token: str | None) -> int:
    punctuator = None
    if options.punctuate_column is not None and options.punctuate_every is not None:
        punctuator = Punctuator(options.punctuate_column, options.punctuate_every)
        punctuator.check(schema)
    rows = source.rows(schema)
    producer = Producer(
        options.address,
        options.name,
        schema,
        unacked=options.unacked,
        token=token,
        root_certificates=options.tls_ca,
        batch_rows=options.batch_rows,
        give_up=options.give_up,
    )
    pump = Pump(
        rows,
        producer,
        rate=options.rate,
        limit=options.limit,
        stop_at_bad=options.on_bad == "stop",
        punctuator=punctuator,
    )
    began = time.monotonic()
    interrupted = False
    try:
        with display_for(quiet=options.quiet) as display:
            display.begin("send", source.bytes)
            pump.start()
            try:
                _follow(pump, producer, source, display, began)
            except KeyboardInterrupt:
                interrupted = True
                display.note("Stopping after what is under way … (Ctrl-C again: at once)")
                pump.stop()
                source.stop()
                pump.join(LEAVE_SECONDS)
            if options.end and not interrupted and pump.error is None:
                producer.end()
            producer.close(LEAVE_SECONDS if interrupted else None)
            _show(pump, producer, source, display, began)
    except KeyboardInterrupt:
        interrupted = True
        producer.abort()
    except AfsparkError as error:
        if not interrupted and pump.error is None:
            raise _with_loss(error, producer)  # noqa: B904 - the same error
    if pump.error is not None:
        raise _with_loss(pump.error, producer) if isinstance(pump.error, AfsparkError) else pump.error
    seconds = time.monotonic() - began
    if not options.quiet:
        print("\n".join([*_summary(pump, producer, seconds), *source.notes()]))
    if interrupted:
        lost = producer.lost
        told = f"{lost} were not acknowledged" if lost else "everything that was sent is acknowledged"
        print(f"afspark: stopped; {told}.", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _follow(pump: Pump, producer: Producer, source: SendSource, display: Display, began: float) -> None:
    while pump.is_alive():
        pump.join(POLL_SECONDS)
        _show(pump, producer, source, display, began)
    if pump.error is None:
        while producer.unacknowledged:
            with contextlib.suppress(AfsparkError):
                producer.flush(POLL_SECONDS)
            if not producer.alive:
                return
            _show(pump, producer, source, display, began)


def _show(pump: Pump, producer: Producer, source: SendSource, display: Display, began: float) -> None:
    counters = producer.counters
    display.show(
        Sending(
            bytes=pump.read,
            items=counters.acknowledged,
            batches=counters.sent,
            seconds=time.monotonic() - began,
            taken=counters.taken,
            resent=counters.resent,
            bad=pump.bad,
            left_out=source.left_out(),
        )
    )


def _with_loss(error: AfsparkError, producer: Producer) -> AfsparkError:
    """The error with what is unacknowledged in its text, unless it says so already."""
    items = producer.lost.items
    if items and str(items) not in error.message:
        error.message = f"{error.message.rstrip('.')}; {number_text(items)} rows are unacknowledged."
    return error


def _summary(pump: Pump, producer: Producer, seconds: float) -> list[str]:
    counters, lost = producer.counters, producer.lost
    speed = counters.bytes / 1e6 / seconds if seconds else 0.0
    lines = [
        f"Sent {number_text(counters.sent)} rows ({bytes_text(counters.bytes)}) in {seconds_text(seconds)}: "
        f"{speed:,.1f} MB/s, {number_text(round(counters.sent / seconds))} rows/s.",
        f"Acknowledged {number_text(counters.acknowledged)} · latency p50 {_ms(counters.latency_p50)}, "
        f"p99 {_ms(counters.latency_p99)} · resent {number_text(counters.resent)} · lost {number_text(lost.items)}",
    ]
    if pump.bad:
        lines.append(f"Skipped {number_text(pump.bad)} rows that do not fit; the first: {pump.example}")
    return lines


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:.1f} ms"


def _schema(dial: Dial, options: SendOptions) -> pa.Schema:
    """The receiver's schema; waits for a receiver that is not up yet."""
    began = time.monotonic()
    pause = 0.05
    told = options.quiet
    while True:
        try:
            return fetch_schema(dial)
        except AfsparkError as error:
            waited = time.monotonic() - began
            if not may_pass(error):
                raise
            if waited + pause > options.give_up:
                reason, remedy = why_away(error)
                raise ReceiverUnreachable(
                    f"The receiver at {options.address} could not be reached for {waited:.0f} s ({reason}).",
                    remedy=remedy,
                    address=options.address,
                    reason=reason,
                ) from error
        if not told and time.monotonic() - began > 1:
            print(f"Waiting for the receiver at {options.address} …", file=sys.stderr, flush=True)
            told = True
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
