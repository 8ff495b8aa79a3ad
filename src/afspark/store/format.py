"""The one format of stored objects: a JSON header and Arrow tables under a checksum.

====================  =======================================================================
bytes                 content
====================  =======================================================================
8                     magic
4 + 4 + 8             format version, length of the header, length of the whole object
header                JSON: the caller's meta, and of each image what it is of, its offset and length
images                Arrow IPC streams of one record batch each, starting at multiples of 64
16                    BLAKE2b-128 of everything before
====================  =======================================================================

Integers are little-endian. Magic, version and the checksum at the end stay where they are in every future
version, so that an object of another version is told from a damaged one. Nothing is ever unpickled.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import pyarrow as pa

from afspark.errors import CorruptObject, ForeignObject
from afspark.store.images import ImageKey, key_from_json, key_to_json
from afspark.store.jsontext import from_json, to_json

MAGIC = b"afspark\n"
FORMAT_VERSION = 2

OTHER_RELEASE = "Use that release, or start with a new checkpoint folder."
"""The remedy for what another release has written."""

Key = TypeVar("Key", bound=ImageKey)

_PREFIX = struct.Struct("<8sIIQ")
_DIGEST = 16
_ALIGNMENT = 64


@dataclass(frozen=True)
class Sealed:
    """What an object holds. ``images`` are views of the object's bytes."""

    meta: dict[str, Any]
    images: dict[ImageKey, pa.RecordBatch]
    checksum: str


def seal(meta: dict[str, Any], images: Mapping[Key, pa.RecordBatch]) -> bytes:
    """The bytes of an object. ``meta`` must be JSON; `UsageError` if not."""
    streams = {key: _to_ipc(batch) for key, batch in images.items()}
    # Offsets count from the end of the header, whose own length depends on them.
    index, offset = [], 0
    for key, stream in streams.items():
        index.append([key_to_json(key), offset, stream.size])
        offset = _aligned(offset + stream.size)
    header = to_json({"meta": meta, "images": index})
    start = _aligned(_PREFIX.size + len(header))
    total = start + offset + _DIGEST
    parts: list[Any] = [_PREFIX.pack(MAGIC, FORMAT_VERSION, len(header), total), header]
    parts.append(bytes(start - _PREFIX.size - len(header)))
    for stream in streams.values():
        parts += [stream, bytes(_aligned(stream.size) - stream.size)]
    digest = blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def unseal(data: bytes, name: str = "") -> Sealed:
    """The content of an object, copying nothing but the header.

    `CorruptObject` if a byte is missing, added or changed; `ForeignObject` if the object is sound but not
    of this format version. ``name`` goes into the errors.
    """
    body = memoryview(data)[:-_DIGEST]
    if len(body) < _PREFIX.size or blake2b(body, digest_size=_DIGEST).digest() != data[-_DIGEST:]:
        raise CorruptObject(f"Object {name} is damaged: its checksum does not match.", name=name)
    magic, version, header_length, total = _PREFIX.unpack_from(body)
    if magic != MAGIC:
        raise ForeignObject(f"Object {name} is not of afspark.", name=name, found=repr(magic), expected=repr(MAGIC))
    if version != FORMAT_VERSION:
        raise ForeignObject(
            f"Object {name} was {written_by(version)}.",
            remedy=OTHER_RELEASE,
            name=name,
            found=version,
            expected=FORMAT_VERSION,
        )
    try:
        header = from_json(bytes(body[_PREFIX.size : _PREFIX.size + header_length]))
        start = _aligned(_PREFIX.size + header_length)
        buffer = pa.py_buffer(data)
        images = {
            key_from_json(key): _from_ipc(buffer.slice(start + offset, length))
            for key, offset, length in header["images"]
        }
        if total != len(data):
            raise ValueError(f"{total} bytes expected")
        return Sealed(header["meta"], images, checksum_of(data))
    except (ValueError, KeyError, TypeError, IndexError, StopIteration, OSError, pa.ArrowException) as error:
        raise CorruptObject(f"Object {name} is damaged inside: {error}.", name=name) from error


def written_by(version: int) -> str:
    """Who wrote something of another format version, for errors.

    >>> written_by(FORMAT_VERSION - 1)
    'written by an earlier release (format 1, this release reads format 2)'
    """
    which = "an earlier" if version < FORMAT_VERSION else "a later"
    return f"written by {which} release (format {version}, this release reads format {FORMAT_VERSION})"


def checksum_of(data: bytes) -> str:
    """The checksum an object carries at its end, as text; it is verified by `unseal`, not here."""
    return data[-_DIGEST:].hex()


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _to_ipc(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _from_ipc(buffer: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(buffer) as reader:
        batch = reader.read_next_batch()
    batch.validate()
    return batch
