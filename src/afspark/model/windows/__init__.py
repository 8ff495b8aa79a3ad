"""Windows: how the time of a stream is cut, and when a piece of it has ended."""

from afspark.model.windows.decay import Decayed, needs_rebase, scale
from afspark.model.windows.fading import Fading
from afspark.model.windows.pane_report import PaneReport
from afspark.model.windows.panes import Part, Split, split
from afspark.model.windows.punctuation import END, Punctuation
from afspark.model.windows.specs import Decaying, Hopping, Sliding, Window
from afspark.model.windows.window_progress import WindowProgress, late

__all__ = [
    "END",
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
    "WindowProgress",
    "late",
    "needs_rebase",
    "scale",
    "split",
]
