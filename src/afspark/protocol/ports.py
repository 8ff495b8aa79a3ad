"""Under which names a worker keeps what others will read."""

from __future__ import annotations

#: Ports of what a worker keeps for others: items for all operators downstream, rows for the sink, closed windows.
ALL = "all"


ROWS = "rows"


WINDOWS = "windows"


def items_for(successor: str) -> str:
    """The port of items for one operator only."""
    return f"to-{successor}"


def feedback_for(target: str) -> str:
    """The port of feedback to an operator upstream."""
    return f"back-{target}"
