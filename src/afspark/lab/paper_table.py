"""What the paper found for Bargain Discovery: table 2, and what replication changed (section 6.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class PaperFigures:
    """A row of table 2; and R^lq and I^lq after the reconfiguration, where the paper gives them."""

    coq: float
    sigma: float
    verdict: str
    rlq: int
    ilq: float
    rlq_after: int | None = None
    ilq_after: float | None = None


PAPER = {
    "Source": PaperFigures(-0.38, 0.21, "R", 340, 21.23, 39, 1.05),
    "TradeFilter": PaperFigures(0.97, 0.76, "R", 340, 48.70, 2, 2.0),
    "QuoteFilter": PaperFigures(-1.00, 0.00, "A", 6, 6.00),
    "VWAP": PaperFigures(0.99, 0.14, "R", 73, 30.87, 2, 2.0),
    "BargainIndex": PaperFigures(-0.69, 0.08, "A", 43, 7.89),
}


def paper_figures(targets: Iterable[str]) -> dict[str, PaperFigures]:
    """The paper's figures of these targets, if they are all those of Bargain Discovery; nothing for other pipelines.

    >>> paper_figures(["source", "trade_filter", "quote-filter", "vwap", "bargain_index"])["vwap"].rlq
    73
    >>> paper_figures(["Source"])
    {}
    """
    known = {_plain(name): figures for name, figures in PAPER.items()}
    found = {name: known[_plain(name)] for name in targets if _plain(name) in known}
    return found if len(found) == len(PAPER) else {}


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
