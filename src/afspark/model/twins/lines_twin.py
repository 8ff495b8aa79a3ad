"""Plain Python twin of the kernels that search lines."""

from __future__ import annotations

from collections.abc import Iterable


def all_lines(blocks: Iterable[bytes]) -> list[bytes]:
    """Lines without their ends: a newline, or a carriage return and a newline; the last may have none."""
    lines = []
    for block in blocks:
        *whole, rest = block.split(b"\n")
        lines += [line.removesuffix(b"\r") for line in whole] + ([rest] if rest else [])
    return lines


def lines_with(blocks: Iterable[bytes], needle: bytes) -> list[bytes]:
    return [line for line in all_lines(blocks) if needle in line]


def rows_with(rows: Iterable[bytes | None], needle: bytes) -> list[bool]:
    return [row is not None and needle in row for row in rows]
