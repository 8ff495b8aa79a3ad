"""Plain Python twin of the kernels that search lines."""

from __future__ import annotations

from collections.abc import Iterable

from afspark.report.recount import all_lines


def lines_with(blocks: Iterable[bytes], needle: bytes) -> list[bytes]:
    return [line for line in all_lines(blocks) if needle in line]


def rows_with(rows: Iterable[bytes | None], needle: bytes) -> list[bool]:
    return [row is not None and needle in row for row in rows]
