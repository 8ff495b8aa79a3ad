"""Files in the format of libsvm, read by byte ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.errors import InputError, UsageError
from afspark.model.onbad import SKIP, STOP, check_on_bad
from afspark.sources.chunked_files import ChunkedFiles
from afspark.sources.chunks import ByteRange
from afspark.sources.file_source import require_files
from afspark.sources.source import require_columns
from afspark.sources.text_files import lines_of
from afspark.store.address_schemes import redact

ROWS = pa.schema([("label", pa.float64()), ("index", pa.list_(pa.int32())), ("value", pa.list_(pa.float64()))])


@dataclass(frozen=True)
class LibsvmFiles(ChunkedFiles, kind="libsvm"):
    """Files of lines ``label index:value …``: a folder, a file, or a glob; new files are picked up. What follows ``#``
    is a comment, and lines without items are none.

    A line that cannot be parsed becomes a row without a label and without features, which a learner counts and skips;
    with ``on_bad="stop"`` it is an InputError that names file and byte.
    """

    path: str
    on_bad: str = SKIP
    chunk_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_on_bad(self.on_bad)

    def schema(self) -> pa.Schema:
        return ROWS

    def validate(self, needs: Mapping[str, str] | None = None) -> None:
        """Checks also that the first lines of the first file are of this format at all."""
        from afspark.model.kernels.libsvm import parse_libsvm

        first = require_files(self.path)[0]
        text = lines_of(first.path, 0, min(first.size, 1 << 16), first.size)
        labels = parse_libsvm(np.frombuffer(text, np.uint8)).labels
        if len(labels) and np.isnan(labels).all():
            raise UsageError(
                f"None of the first {len(labels)} lines of {redact(first.path)!r} is `label index:value …`.",
                remedy="Is it a file of another format?",
                path=first.path,
            )
        require_columns(self.schema(), needs or {})

    def read(self, chunk: ByteRange) -> Iterator[pa.RecordBatch]:
        from afspark.model.kernels.libsvm import parse_libsvm

        text = lines_of(chunk.path, chunk.start, chunk.stop, chunk.size)
        if text.size == 0:
            return
        data = np.frombuffer(text, np.uint8)
        found = parse_libsvm(data)
        bad = np.isnan(found.labels)
        if self.on_bad == STOP and bad.any():
            at = int(found.starts[bad.argmax()])
            raise bad_line(chunk.path, data[at : at + 200].tobytes())
        offsets = pa.array(found.offsets.astype(np.int32))
        lists = [pa.ListArray.from_arrays(offsets, pa.array(part)) for part in (found.cells, found.value)]
        if len(found.labels):
            yield pa.record_batch([pa.array(found.labels, mask=bad), *lists], schema=ROWS)


def bad_line(path: str, text: bytes) -> InputError:
    line = text.split(b"\n")[0].decode(errors="replace").strip()
    shown = line if len(line) <= 60 else f"{line[:57]}..."
    return InputError(
        f"Input file {redact(path)!r} has a line that cannot be parsed: {shown!r}.",
        remedy="Repair it, or let such rows be skipped.",
        path=path,
        missing=False,
        line=shown,
    )
