"""Attacks on a receiver, and an honest producer and worker who must not notice them."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from afspark.errors import AfsparkError
from afspark.push.consumer.lane_client import LaneClient
from afspark.push.wire.messages import (
    ATTACH,
    BYE,
    CONFIRM,
    HELLO,
    STATS,
    STOP_LOGGING,
    Allowance,
    BatchTag,
    Bye,
    Hello,
    PunctuationMark,
    PutHeader,
)
from afspark.push.wire.worker_messages import Attach, Confirm, Pull, StopLogging
from tests.unit.push.child_receiver import WORKERS
from tests.unit.push.flightclient import Client
from tests.unit.push.mutation import MutatingProxy, damaged, damaged_json, misnumbered, noise

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("blob", pa.large_binary()),
        ("flag", pa.bool_()),
        ("words", pa.list_(pa.string())),
        ("pair", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)

_PAIR = SCHEMA.field("pair").type

#: the honest work on the first, attacks go to the second, and what pretends to be a worker to the third
HONEST, ATTACKED, CLAIMED = 0, 1, 2
LANES = 3

#: no claim that an attack makes up is higher
HIGHEST = (1 << 63) - 1
_CALL_SECONDS = 1.0

#: what a call may end with at the client's side; anything else is a mistake of the test
REFUSALS = (pa.ArrowException, OSError, AfsparkError, StopIteration)
_UNFORESEEN = "The receiver failed"


def rows(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch(
        [
            pa.array(numbers, pa.int64()),
            pa.array([f"item {number}" if number % 3 else None for number in numbers]),
            pa.array([bytes([number & 255]) * (number % 7) for number in numbers], pa.large_binary()),
            pa.array([number % 5 == 0 if number % 2 else None for number in numbers], pa.bool_()),
            pa.array([["a"] * (number % 4) if number % 5 else None for number in numbers], pa.list_(pa.string())),
            pa.array([{"x": number & 7, "y": "é"} for number in numbers], _PAIR),
        ],
        schema=SCHEMA,
    )


def unsound(rng: random.Random) -> pa.RecordBatch:
    """A batch of which one buffer leads out of bounds, or whose counts are not those of its buffers."""
    length = rng.randint(2, 50)
    columns = list(rows(0, length).columns)
    wild = [0, *[rng.choice((9, 1 << 20, (1 << 31) - 1, -(1 << 31))) for _ in range(length - 1)]]
    offsets, ends = bytearray(4 * length + 4), bytearray(4 * length + 4)
    long_offsets = bytearray(8 * length + 8)
    eight, one = pa.py_buffer(b"abcdefgh"), pa.array(["x"])
    text = pa.Array.from_buffers(pa.string(), length, [None, pa.py_buffer(offsets), eight])
    zeros = [pa.py_buffer(bytes(8)), pa.py_buffer(bytes(8 * length))]
    place, column = rng.choice(
        [
            (0, pa.Array.from_buffers(pa.int64(), length, zeros, null_count=1)),
            (0, pa.Array.from_buffers(pa.int64(), length, zeros)),
            (1, text),
            (1, pa.Array.from_buffers(pa.string(), length, [zeros[0], zeros[1], eight], null_count=1)),
            (2, pa.Array.from_buffers(pa.large_binary(), length, [None, pa.py_buffer(long_offsets), eight])),
            (3, pa.Array.from_buffers(pa.bool_(), length, zeros, null_count=1)),
            (4, pa.Array.from_buffers(SCHEMA.field("words").type, length, [None, pa.py_buffer(ends)], children=[one])),
            (5, pa.StructArray.from_arrays([pa.array([0] * length, pa.int32()), text], fields=list(_PAIR))),
        ]
    )
    columns[place] = column
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    # Only now, as making an array looks at its first and last offset; so does the client before it writes.
    offsets[:] = struct.pack(f"<{length + 1}i", *wild, 8)
    ends[:] = struct.pack(f"<{length + 1}i", *wild, 1)
    long_offsets[:] = struct.pack(f"<{length + 1}q", *[each << 20 for each in wild], 8)
    return batch


class Attacker:
    """Does one seeded thing after another to the receiver on ``port``; ``counts`` tells what.

    Producers named ``garbage`` never send a batch that may be taken; those named ``mutant`` may do so by chance.
    """

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._address = f"grpc://127.0.0.1:{port}"
        self._rng = random.Random(seed)
        self._direct = Client(self._address, "garbage", timeout=_CALL_SECONDS)
        self._direct.hello()
        self._worker = Client(self._address, timeout=_CALL_SECONDS, headers=WORKERS.headers())
        self.counts: Counter[str] = Counter()
        #: answers that tell of a mistake in the receiver
        self.unforeseen: list[str] = []

    def attack(self) -> None:
        kind, chosen = self._rng.choice(
            [
                ("noise", self.noise),
                ("mutated bytes", lambda: self.mutated(frames=False)),
                ("mutated messages", lambda: self.mutated(frames=True)),
                ("mutated messages", lambda: self.mutated(frames=True)),
                ("json action", self.json_action),
                ("json ticket", self.json_ticket),
                ("json put", self.json_put),
                ("unsound batch", self.unsound_batch),
            ]
        )
        self.counts[kind] += 1
        chosen()

    def close(self) -> None:
        self._direct.close()
        self._worker.close()

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except REFUSALS as error:
            if _UNFORESEEN in str(error):
                self.unforeseen.append(str(error)[:300])

    def noise(self) -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port), _CALL_SECONDS) as connection,
        ):
            data = noise(self._rng)
            cut = self._rng.randrange(len(data) + 1)
            connection.sendall(data[:cut])
            connection.sendall(data[cut:])
            connection.settimeout(self._rng.choice((0.001, 0.05)))
            connection.recv(1 << 16)

    def mutated(self, *, frames: bool) -> None:
        """A producer and a worker do what they should, over a connection that damages it once, somewhere."""
        rng = random.Random(self._rng.getrandbits(64))
        first = rng.randrange(1, 7)
        how = rng.choice((damaged, misnumbered, misnumbered)) if frames else damaged
        seen = 0

        def mutate(data: bytes) -> bytes:
            nonlocal seen
            seen += 1
            return how(rng, data) if seen >= first else data

        with MutatingProxy(self._port, mutate, frames=frames) as proxy:
            client = Client(proxy.address, "mutant", timeout=_CALL_SECONDS)
            claim = {"incarnation": 1, "fence": 1, "access": WORKERS, "timeout": 0.2}
            try:
                with self._refused():
                    self._produce(client, rng)
                with self._refused(), LaneClient(proxy.address, CLAIMED, **claim) as worker:
                    worker.attach()
                    worker.pull({"x/00112233": 4})
                    worker.stop_logging({"x/00112233": 4})
            finally:
                client.close()

    def _produce(self, client: Client, rng: random.Random) -> None:
        client.hello()
        stream = client.stream(SCHEMA)
        try:
            start = 0
            for _ in range(rng.randint(1, 3)):
                batch = rows(start, rng.randint(1, 40))
                stream.writer.write_with_metadata(batch, BatchTag(ATTACKED, start).to_bytes())
                start += batch.num_rows
            end = BatchTag(ATTACKED, start, PunctuationMark(time=1.0))
            stream.writer.write_with_metadata(rows(0, 0), end.to_bytes())
            stream.end()
            while stream.reader.read() is not None:
                pass
        finally:
            stream.close()
        client.bye({ATTACKED: start + 1})

    def json_action(self) -> None:
        rng = self._rng
        ends = {ATTACKED: 0}
        claim = (CLAIMED, rng.randrange(3), rng.randrange(3))
        messages = {
            HELLO: Hello("garbage", self._direct.session, ends).to_bytes(),
            BYE: Bye("garbage", f"{rng.getrandbits(64):016x}", ends).to_bytes(),
            ATTACH: Attach(*claim, positions={"x/00112233": 4}, allow=Allowance(10, 1.0)).to_bytes(),
            STOP_LOGGING: StopLogging(*claim, positions={"x/00112233": 4}).to_bytes(),
            CONFIRM: Confirm(*claim, positions={"x/00112233": 4}).to_bytes(),
            STATS: b"",
            "": b"",
            "h\u00e9llo" * 30: b"{}",
        }
        kind = rng.choice(list(messages))
        client = self._direct if kind in (HELLO, BYE) else self._worker
        with self._refused():
            client.act(kind, damaged_json(rng, messages[kind]))

    def json_ticket(self) -> None:
        claim = (CLAIMED, self._rng.randrange(3), self._rng.randrange(3))
        ticket = Pull(*claim, confirmed={"x/00112233": 4}, after={"y/00112233": 4}, allow=Allowance(10, None))
        with self._refused():
            options = flight.FlightCallOptions(timeout=0.1, headers=WORKERS.headers())
            reader = self._worker.flight.do_get(flight.Ticket(damaged_json(self._rng, ticket.to_bytes())), options)
            while reader.read_chunk():
                pass

    def json_put(self) -> None:
        """Either the stream's command or the batch's tag is wrong; where it is right by chance, the schema is not."""
        rng = self._rng
        command, tag = PutHeader("garbage", self._direct.session).to_bytes(), BatchTag(ATTACKED, 0).to_bytes()
        if rng.randrange(2):
            command = damaged_json(rng, command)
        else:
            tag = damaged_json(rng, tag)
        others = [pa.schema([("d", pa.dictionary(pa.int32(), pa.string()))]), pa.schema([]), SCHEMA.remove(0)]
        schema = rng.choice([SCHEMA, SCHEMA, *others])
        self._put(command, tag, schema, pa.RecordBatch.from_pylist([], schema=schema))

    def unsound_batch(self) -> None:
        command = PutHeader("garbage", self._direct.session).to_bytes()
        self._put(command, BatchTag(ATTACKED, 0).to_bytes(), SCHEMA, unsound(self._rng))

    def _put(self, command: bytes, tag: bytes, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        with self._refused():
            stream = self._direct.stream(schema, command)
            try:
                stream.writer.write_with_metadata(batch, tag)
                stream.end()
                while stream.reader.read() is not None:
                    pass
            finally:
                stream.close()


class Honest:
    """A producer and a worker on a lane of their own, and a worker on the lane that is attacked.

    ``wrong`` tells what they noticed; it should stay empty. ``rounds`` counts what was sent, acknowledged,
    handed out and compared.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self.rounds = 0
        self.mutants = 0
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._watch, args=(each,)) for each in (self._work, self._sweep)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (whatever it is, it should not have happened)
            self.wrong.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _work(self) -> None:
        client = Client(self._address, "honest", timeout=600)
        client.hello()
        stream = client.stream(SCHEMA)
        with LaneClient(self._address, HONEST, incarnation=HIGHEST, fence=HIGHEST, access=WORKERS) as worker:
            positions: dict[str, int] = {}
            start = 0
            while not self._stop.wait(0.002):
                batch = rows(start, 1 + start % 23)
                stream.writer.write_with_metadata(batch, BatchTag(HONEST, start).to_bytes())
                stream.ack_up_to(start + batch.num_rows, HONEST)
                found = [entry for entry in worker.pull(positions, wait=20.0) if self._is_mine(entry, client.id)]
                if [(entry.start, entry.batch) for entry in found] != [(start, batch)]:
                    self.wrong.append(f"{start}: {[(entry.start, entry.end) for entry in found]} came back")
                    return
                start += batch.num_rows
                positions = {client.id: start}
                self.rounds += 1
        stream.close()
        client.bye({HONEST: start})
        client.close()

    def _sweep(self) -> None:
        """Takes what attacks brought into their lane: sound batches of mutants, never any of garbage."""
        positions: dict[str, int] = {}
        with LaneClient(self._address, ATTACKED, incarnation=HIGHEST, fence=HIGHEST, access=WORKERS) as worker:
            while not self._stop.is_set():
                for entry in worker.pull(positions, wait=0.2):
                    self._is_mine(entry, "")
                    positions[entry.producer] = max(entry.end, positions.get(entry.producer, 0))
                    self.mutants += 1
                if len(positions) > 100:
                    worker.confirm(positions)
                    positions = {}

    def _is_mine(self, entry: Any, producer: str) -> bool:
        if entry.producer == producer:
            return True
        if entry.producer.startswith("garbage") and entry.batch is not None:
            self.wrong.append(f"{entry.producer} brought {entry.batch.num_rows} rows into a lane")
        if entry.batch is not None:
            entry.batch.validate(full=True)
            entry.batch.to_pylist()
        return False


@dataclass
class Outcome:
    """How many attacks of each kind there were, and what they were answered that nobody foresaw."""

    counts: Counter[str]
    unforeseen: list[str]


def campaign(port: int, seed: int, *, threads: int, until: Callable[[int, float], bool]) -> Outcome:
    """Attacks from several threads until ``until(attacks so far, seconds)``."""
    attackers = [Attacker(port, (seed << 8) + number) for number in range(threads)]
    began = time.monotonic()
    errors: list[BaseException] = []

    def attack(attacker: Attacker) -> None:
        try:
            while not errors and not until(sum(each.counts.total() for each in attackers), time.monotonic() - began):
                attacker.attack()
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            errors.append(error)
        finally:
            attacker.close()

    running = [threading.Thread(target=attack, args=(attacker,)) for attacker in attackers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return Outcome(
        sum((attacker.counts for attacker in attackers), Counter()),
        [answer for attacker in attackers for answer in attacker.unforeseen],
    )
