"""Plain Python twin of the word-counting kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def count_words(rows: Iterable[bytes | None], *, lower: bool = False) -> list[tuple[bytes, int]]:
    """(word, count) in order of first sight; ``bytes.split`` cuts at ASCII white space."""
    counts: Counter[bytes] = Counter()
    for row in rows:
        counts.update(((row or b"").lower() if lower else row or b"").split())
    return list(counts.items())
