"""Numbers that must not be mixed up. The type checker keeps them apart; at run time they are integers."""

from __future__ import annotations

from typing import NewType

Batch = NewType("Batch", int)
"""A batch of the query, as Spark counts them; -1 is the one before the first."""

Incarnation = NewType("Incarnation", int)
"""How often a worker's state was lost: each loss makes a new incarnation."""

Fence = NewType("Fence", int)
"""Grows with every driver and every batch that is taken back; whoever has an older one must not act any more."""

Step = NewType("Step", int)
"""How many steps of a batch of pushed items are closed."""

PaneNumber = NewType("PaneNumber", int)
"""A pane of a window."""

FIRST_INCARNATION = Incarnation(0)
NO_INCARNATION = Incarnation(-1)
"""Of an entry that is about no incarnation in particular."""

NO_FENCE = Fence(0)
NO_STEP = Step(0)
FIRST_TICK = PaneNumber(0)
