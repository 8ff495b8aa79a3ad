"""How the state of a pane is called, in memory as in backups."""

from __future__ import annotations

Pane = int | None


def label(state: str, pane: Pane) -> str:
    return state if pane is None else f"{state}@{pane}"


def parse_label(name: str) -> tuple[str, Pane]:
    state, _, pane = name.partition("@")
    return state, int(pane) if pane else None
