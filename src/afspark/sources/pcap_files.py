"""Packet captures: classic pcap files of either byte order, in micro- or nanoseconds."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from afspark.errors import InputError, UsageError
from afspark.model.onbad import SKIP, STOP, check_on_bad
from afspark.sources.chunked_files import ChunkedFiles
from afspark.sources.chunks import ByteRange
from afspark.sources.file_source import FoundFile, changed, open_file, require_files
from afspark.sources.source import require_columns
from afspark.store.address_schemes import redact

CAPTURED = pa.schema(
    [
        ("src", pa.string()),
        ("dst", pa.string()),
        ("bytes", pa.int64()),
        ("second", pa.int64()),
        ("protocol", pa.int32()),
    ]
)

_HEADER_BYTES = 24
_WINDOW = 8 << 20
#: first bytes of a file: byte order, nanoseconds
_MAGIC = {
    b"\xd4\xc3\xb2\xa1": ("<", False),
    b"\xa1\xb2\xc3\xd4": (">", False),
    b"\x4d\x3c\xb2\xa1": ("<", True),
    b"\xa1\xb2\x3c\x4d": (">", True),
}
_ELSE = {
    b"\x0a\x0d\x0d\x0a": "it is pcapng; convert it with 'editcap -F pcap'",
    b"\x1f\x8b": "it is compressed; unpack it first",
    b"\x28\xb5\x2f\xfd": "it is compressed; unpack it first",
}


class Header(NamedTuple):
    """What the first 24 bytes of a capture say."""

    big: bool
    nanoseconds: bool
    longest: int
    link: int


@dataclass(frozen=True)
class PcapFiles(ChunkedFiles, kind="pcap"):
    """Packets of the capture files in a folder (with subfolders), a single file, or a glob.

    A row for each IPv4 or IPv6 packet: addresses ``src`` and ``dst`` as text, ``bytes`` on the wire, ``second``
    since 1970, and ``protocol`` by its number (6: TCP). Ethernet (with VLAN tags), raw IP, Linux cooked and BSD
    loopback frames are understood; frames that carry no IP are left out.

    What is damaged or cut off (a record, a stretch without sound records, a file without a sound header) becomes
    one row of nulls, so that whoever comes next can count and skip it; ``on_bad="stop"`` makes it an InputError.
    A file is walked once when it is found, because nothing but the chain of records tells where it can be cut.
    """

    path: str
    on_bad: str = SKIP
    chunk_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_on_bad(self.on_bad)

    def schema(self) -> pa.Schema:
        return CAPTURED

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        require_columns(CAPTURED, needs or {})
        problems = []
        for file in require_files(self.path):
            try:
                read_header(file.path)
                return
            except InputError as error:
                problems.append(error)
        raise UsageError(f"Nothing at {redact(self.path)!r} is a capture: {problems[0]}", path=self.path) from problems[
            0
        ]

    def read(self, chunk: ByteRange) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans other sources needs no compiled kernels.
        from afspark.model.kernels.captures import BAD, OTHER, Chain, parse

        path, start = chunk.path, chunk.start
        try:
            header = read_header(path)
        except InputError as error:
            if self.on_bad == STOP or error.fields.get("missing"):
                raise
            yield pa.RecordBatch.from_pylist([dict.fromkeys(CAPTURED.names)], schema=CAPTURED)
            return
        data = read_bytes(path, start, chunk.stop)
        chain = Chain(big=header.big, nanoseconds=header.nanoseconds, longest=header.longest)
        starts, bad, _ = chain.walk(data, final=True)
        kinds, columns = parse(data, starts, bad, big=header.big, link=header.link)
        if self.on_bad == STOP and (kinds == BAD).any():
            at = start + int(starts[kinds == BAD][0])
            raise InputError(
                f"Input file {redact(path)!r} has a damaged record at byte {at}.",
                remedy="Mend or remove it, or let such records be skipped and counted.",
                path=path,
                position=at,
            )
        rows = pa.record_batch([columns[name] for name in CAPTURED.names], schema=CAPTURED)
        yield rows.filter(pa.array(kinds != OTHER)) if (kinds == OTHER).any() else rows

    def _split(self, file: FoundFile) -> list[dict[str, Any]]:
        try:
            header = read_header(file.path)
            starts = [_HEADER_BYTES, *cuts(file, header, self.chunk_bytes)]
        except InputError as error:
            # A file that went away while it was looked at was never part of the stream.
            return [] if error.fields.get("missing") else [{"start": 0, "stop": file.size, "bytes": file.size}]
        stops = [*starts[1:], file.size]
        return [{"start": a, "stop": b, "bytes": b - a} for a, b in zip(starts, stops, strict=True)]


def read_header(path: str) -> Header:
    """The header of a capture; InputError if there is none that can be used."""
    from afspark.model.kernels.captures import LINKS, LONGEST

    with open_file(path) as file:
        head = file.read(_HEADER_BYTES)
    if head[:4] not in _MAGIC or len(head) < _HEADER_BYTES:
        why = next((why for magic, why in _ELSE.items() if head.startswith(magic)), "its header is none of pcap's")
        raise InputError(f"Input file {redact(path)!r} is no capture: {why}.", remedy="Repair or remove it.", path=path)
    order, nanoseconds = _MAGIC[head[:4]]
    snapped, link = struct.unpack(f"{order}II", head[16:])
    # The upper bits of the link type tell about frame check sequences.
    link &= 0x0FFFFFFF
    if link not in LINKS:
        raise InputError(
            f"Input file {redact(path)!r} has frames of link type {link}, which are not understood.",
            remedy=f"Known are {', '.join(map(str, LINKS))}.",
            path=path,
            link=link,
        )
    return Header(order == ">", nanoseconds, max(LONGEST, min(snapped, 1 << 24)), link)


def cuts(file: FoundFile, header: Header, chunk_bytes: int) -> list[int]:
    """Places where a file can be cut into pieces of about ``chunk_bytes`` that begin with a sound record."""
    from afspark.model.kernels.captures import Chain

    chain = Chain(big=header.big, nanoseconds=header.nanoseconds, longest=header.longest)
    found: list[int] = []
    base, window, wanted = _HEADER_BYTES, _WINDOW, _HEADER_BYTES + chunk_bytes
    while base < file.size:
        stop = min(base + window, file.size)
        starts, bad, done = chain.walk(read_bytes(file.path, base, stop), final=stop == file.size)
        sound = starts[~bad] + base
        while len(sound) and sound[-1] >= wanted:
            cut = int(sound[np.searchsorted(sound, wanted)])
            found.append(cut)
            wanted = cut + chunk_bytes
        # A record that does not fit the window needs a larger one.
        window = _WINDOW if done else 2 * window
        base += done
    return found


def read_bytes(path: str, start: int, stop: int) -> np.ndarray[Any, Any]:
    """A part of a file; InputError with ``changed=True`` if it became shorter."""
    with open_file(path) as file:
        file.seek(start)
        buffer = file.read_buffer(stop - start)
    if buffer.size < stop - start:
        raise changed(path, f"it ends at byte {start + buffer.size}, before byte {stop}")
    return np.frombuffer(buffer, np.uint8)
