"""Tables of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table and an empty line."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n\n"


def spread(figure: dict[str, float], form: str = "{:.1f}", factor: float = 1.0) -> str:
    """Median, and in brackets the least and the most."""
    median, least, most = (form.format(figure[name] * factor) for name in ("median", "least", "most"))
    return f"{median} ({least} to {most})" if least != most else median
