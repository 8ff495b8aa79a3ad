"""Plain Python twin of the word-counting kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.twins.hashing_twin import hash_bytes


def count_words(rows: Iterable[bytes | None], *, lower: bool = False) -> list[tuple[bytes, int, int]]:
    """(word, count, hash) in order of first sight; ``bytes.split`` cuts at ASCII white space."""
    counts: Counter[bytes] = Counter()
    for row in rows:
        counts.update(((row or b"").lower() if lower else row or b"").split())
    return [(word, count, hash_bytes(word)) for word, count in counts.items()]
