"""Windows: how the time of a stream is cut, and when a piece of it has ended."""

from afspark.model.windows.agenda import Agenda, late
from afspark.model.windows.decay import Decayed, check_decayable, needs_rebase, scale
from afspark.model.windows.fading import Fading
from afspark.model.windows.panes import Part, Split, split
from afspark.model.windows.punctuation import END, Punctuation
from afspark.model.windows.reports import PaneReport
from afspark.model.windows.specs import Decaying, Hopping, Sliding, Window

__all__ = [
    "END",
    "Agenda",
    "Decayed",
    "Decaying",
    "Fading",
    "Hopping",
    "PaneReport",
    "Part",
    "Punctuation",
    "Sliding",
    "Split",
    "Window",
    "check_decayable",
    "late",
    "needs_rebase",
    "scale",
    "split",
]
