"""How a run looks while it goes: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from afspark.report.wording import bytes_text

LINE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Where a run stands; ``seconds`` since its first batch began."""

    bytes: int = 0
    items: int = 0
    batches: int = 0
    backups: int = 0
    recoveries: int = 0
    seconds: float = 0.0

    @property
    def facts(self) -> str:
        """What happened so far."""
        counts = {("batch", "batches"): self.batches, ("backup", "backups"): self.backups}
        counts[("recovery", "recoveries")] = self.recoveries
        return " · ".join(f"{count} {one if count == 1 else more}" for (one, more), count in counts.items())

    def speed(self, total_bytes: int) -> str:
        """How far it is and how fast it goes."""
        rate = self.bytes / 1e6 / self.seconds if self.seconds > 0 else 0.0
        items = self.items / self.seconds if self.seconds > 0 else 0.0
        pace = f"{items / 1e6:,.1f} M" if items >= 1e5 else f"{items:,.0f}"
        done = f"{bytes_text(self.bytes)} of {bytes_text(total_bytes)}"
        return f"{done} · {rate:,.{0 if rate >= 10 else 1}f} MB/s · {pace} items/s"


class Display:
    """Shows nothing. Base of those that do; used as a context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, label: str, total_bytes: int) -> None:
        """Another stream starts."""

    def show(self, now: RunProgress) -> None:
        """Draws the present figures; the command calls it several times a second."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""

    def close(self) -> None:
        """The end, good or bad."""


class Bar(Display):
    """A moving bar for every stream."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[facts]}"),
            console=console,
            transient=False,
        )
        self._task: TaskID | None = None
        self._total = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def begin(self, label: str, total_bytes: int) -> None:
        if self._task is not None:
            self._progress.stop_task(self._task)
        self._total = total_bytes
        self._task = self._progress.add_task(label, total=total_bytes, facts="first batch …")

    def show(self, now: RunProgress) -> None:
        assert self._task is not None
        if now.batches:
            facts = f"{now.speed(self._total)}\n{now.facts}"
            self._progress.update(self._task, completed=now.bytes, facts=facts)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False)

    def close(self) -> None:
        if self._task is not None:
            self._progress.stop_task(self._task)
        self._progress.stop()


class Lines(Display):
    """A line on the error stream every few seconds, if it says something new."""

    def __init__(self) -> None:
        self._label, self._total, self._next = "", 0, 0.0
        self._last = ""

    def begin(self, label: str, total_bytes: int) -> None:
        self._label, self._total, self._next = label, total_bytes, time.monotonic() + LINE_SECONDS

    def show(self, now: RunProgress) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_SECONDS
        line = f"{self._label}: " + (f"{now.speed(self._total)} · {now.facts}" if now.batches else "first batch …")
        if line != self._last:
            self.note(line)
        self._last = line

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def display_for(*, quiet: bool) -> Display:
    """The display that suits the error stream."""
    if quiet:
        return Display()
    console = Console(stderr=True, highlight=False)
    return Bar(console) if console.is_terminal else Lines()
