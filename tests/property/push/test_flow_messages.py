"""Whatever a datagram holds, the parser counts it, says nothing wrong, and is as good as before."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from afspark.push.adapters.flowmessages import RECORD_5
from afspark.push.adapters.flowsequence import Sequence
from afspark.push.adapters.flowtable import COLUMNS
from afspark.push.adapters.netflow import NetFlow
from tests.unit.push import flow_captures
from tests.unit.push.flow_exports import V4, VARIABLE, a_set, flow, ipfix, netflow_9, specifiers, template

SENDER = ("192.0.2.1", 1)
ADDRESSES = {"src", "dst", "nexthop", "exporter"}
TIMES = {"start", "end"}


def schema(address: pa.DataType, time: pa.DataType) -> pa.Schema:
    """All columns, with addresses and times of these types."""
    kinds = dict.fromkeys(COLUMNS, pa.int64()) | dict.fromkeys(ADDRESSES, address) | dict.fromkeys(TIMES, time)
    return pa.schema(list(kinds.items()))


SCHEMAS = [
    schema(pa.string(), pa.timestamp("us", "UTC")),
    schema(pa.int64(), pa.int64()),
    schema(pa.binary(16), pa.float64()),
    schema(pa.large_string(), pa.timestamp("ns")),
]
CAPTURES = [
    flow_captures.SOFTFLOWD_5,
    flow_captures.SOFTFLOWD_9,
    flow_captures.SOFTFLOWD_IPFIX,
    flow_captures.SOFTFLOWD_IPFIX_MICRO,
    flow_captures.SOFTFLOWD_BIFLOW,
    flow_captures.NFREPLAY_9,
]
NUMBERS = st.integers(0, 0xFFFF)
# Elements that mean something, some that do not, and lengths that are likely to be wrong.
FIELDS = st.tuples(
    st.sampled_from([1, 2, 4, 6, 7, 8, 10, 11, 12, 21, 22, 27, 28, 32, 82, 150, 152, 154, 158, 160, 999]),
    st.sampled_from([0, 1, 2, 3, 4, 7, 8, 16, VARIABLE]),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A real datagram with some bytes changed, cut off or repeated."""
    datagram = bytearray(draw(st.sampled_from(CAPTURES)))
    for at, value in draw(st.lists(st.tuples(st.integers(2, len(datagram) - 1), st.integers(0, 255)), max_size=6)):
        datagram[at] = value
    end = draw(st.integers(0, len(datagram)))
    return bytes(draw(st.sampled_from([datagram, datagram[:end], datagram + datagram[end:]])))


@st.composite
def well_formed(draw: st.DrawFn) -> bytes:
    """Sound headers and sets around anything."""
    sets = []
    for kind in draw(st.lists(st.sampled_from(["template", "options", "data", "any"]), max_size=5)):
        number = draw(st.sampled_from([255, 256, 257]))
        fields = draw(st.lists(FIELDS, max_size=6))
        body = template(number, fields)
        if kind == "options":
            body = number.to_bytes(2) + draw(NUMBERS).to_bytes(2) + draw(NUMBERS).to_bytes(2) + specifiers(fields)
        identifiers = {"template": [0, 2], "options": [1, 3], "data": [256, 257], "any": [4, 255, 65_535]}[kind]
        content = body if kind in {"template", "options"} else draw(st.binary(max_size=80))
        sets.append(a_set(draw(st.sampled_from(identifiers)), content))
    return draw(st.sampled_from([netflow_9, ipfix]))(*sets, sequence=draw(st.integers(0, 2**32 - 1)))


@given(st.sampled_from(SCHEMAS), st.lists(st.one_of(st.binary(max_size=200), mutated(), well_formed()), max_size=8))
def test_no_datagram_does_any_harm(columns: pa.Schema, datagrams: list[bytes]) -> None:
    flows = NetFlow(columns)
    rows = flows.datagrams([(datagram, SENDER) for datagram in datagrams])
    counts = flows.counts
    assert counts.malformed + counts.unknown_version <= rows.bad
    assert counts.malformed + counts.unknown_version <= len(datagrams)
    assert min(counts.lost_flows, counts.lost_datagrams, counts.sets_without_template, counts.options) >= 0
    assert rows.batch.num_rows <= sum(map(len, datagrams)), "a record has at least one byte"
    # An exporter beside it is heard as ever.
    fine = netflow_9(a_set(0, template(256, V4)), a_set(256, flow("10.0.0.1")), domain=0xABCD)
    assert flows.datagrams([(fine, ("192.0.2.2", 1))]).batch["bytes"].to_pylist() == [100]


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 2**32 - 1))
def test_losses_are_counted_whatever_overtakes(arrives: list[bool], first: int) -> None:
    """Neighbours change places; the first and the last arrive, or nobody could know of what lies between."""
    arrives = [True, *arrives, True]
    sizes = [index % 7 + 1 for index in range(len(arrives))]
    numbers = [first + sum(sizes[:index]) for index in range(len(arrives))]
    order = [index for index, came in enumerate(arrives) if came]
    for at in range(1, len(order) - 1, 2):
        order[at], order[at + 1] = order[at + 1], order[at]
    sequence = Sequence()
    for index in order:
        sequence.take(numbers[index] % 2**32, sizes[index])
    assert sequence.lost == sum(size for size, came in zip(sizes, arrives, strict=True) if not came)


def test_a_record_of_netflow_5_has_48_bytes() -> None:
    assert RECORD_5.size == 48
