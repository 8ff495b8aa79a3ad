"""Long contests: figures are kept as they come, so that one that was cut off goes on where it was."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from afspark.bench.interleave import Contest, Measure, numbers_of

Contenders = Mapping[str, Measure]
T = TypeVar("T")

RUN_TRIES = 3
_LATE = "failed to connect back"


@dataclass(frozen=True)
class OneRun:
    """One contender of one contest in one round."""

    contest: str
    contender: str
    round: int


class KeptRounds:
    """Figures of finished runs in a file, a line each. ``settings``: those of other settings are passed over."""

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self._path, self._settings = path, dict(settings)
        self._found: dict[OneRun, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            try:
                kept = json.loads(line)
            except ValueError:
                continue  # the process ended while it was being written
            if kept["settings"] == self._settings:
                self._found[OneRun(kept["contest"], kept["contender"], kept["round"])] = kept["figures"]

    def __len__(self) -> int:
        return len(self._found)

    def figures(self, run: OneRun) -> dict[str, Any] | None:
        """What a run has measured; None if it is still to be done."""
        return self._found.get(run)

    def keep(self, run: OneRun, figures: dict[str, Any]) -> None:
        """Notes a run that is done."""
        self._found[run] = figures
        if self._path is not None:
            line = json.dumps({"settings": self._settings, **vars(run), "figures": figures})
            with self._path.open("a") as file:
                # A line that was cut off has no end.
                file.write(f"\n{line}\n" if self._is_torn() else f"{line}\n")

    def forget(self) -> None:
        """Removes the file: its figures are in the experiment's own."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _is_torn(self) -> bool:
        assert self._path is not None
        data = self._path.read_bytes()
        return bool(data) and not data.endswith(b"\n")


class TimeLeft:
    """An estimate from the runs so far: a contender takes as long as it took before, else as the others."""

    def __init__(self, runs: Sequence[OneRun]) -> None:
        self._left = list(runs)
        self._seconds: dict[tuple[str, str], list[float]] = {}

    def done(self, run: OneRun, seconds: float) -> None:
        self._left.remove(run)
        self._seconds.setdefault((run.contest, run.contender), []).append(seconds)

    def seconds(self) -> float:
        known = {who: sum(taken) / len(taken) for who, taken in self._seconds.items()}
        usual = sum(known.values()) / len(known) if known else 0.0
        return sum(known.get((run.contest, run.contender), usual) for run in self._left)


def in_order(contests: Mapping[str, Contenders], rounds: int) -> list[OneRun]:
    """All runs: round after round, in each of them contest after contest, in each of those contenders in turn."""
    order = []
    for number in range(1, rounds + 1):
        for contest, contenders in contests.items():
            names, turn = list(contenders), number % len(contenders)
            order += [OneRun(contest, name, number) for name in names[turn:] + names[:turn]]
    return order


def run_contests(
    contests: Mapping[str, Contenders], *, rounds: int, kept: KeptRounds, warm_up: Callable[[], object]
) -> dict[str, Contest]:
    """The figures of all rounds. ``warm_up`` is called first, unless everything has been measured before."""
    order = in_order(contests, rounds)
    open_runs = [run for run in order if kept.figures(run) is None]
    if len(open_runs) < len(order):
        _say(f"{len(order) - len(open_runs)} of {len(order)} runs were measured before; going on with the others")
    if open_runs:
        _say(f"warming up, then {len(open_runs)} runs")
        _tried(warm_up)
    left = TimeLeft(open_runs)
    for run in open_runs:
        started = time.perf_counter()
        figures = _tried(contests[run.contest][run.contender])
        kept.keep(run, figures)
        left.done(run, time.perf_counter() - started)
        shown = ", ".join(f"{name} {value:,.3g}" for name, value in numbers_of(figures).items())
        _say(
            f"round {run.round}/{rounds}  {run.contest}: {run.contender}  {shown}  ({left.seconds() / 60:.0f} min left)"
        )
    return {
        contest: Contest({name: _of_rounds(kept, contest, name, rounds) for name in contenders})
        for contest, contenders in contests.items()
    }


def _tried(run: Callable[[], T]) -> T:
    """What a run gives; it is done again if Spark could not start a Python process in time, as on a busy machine."""
    for _ in range(RUN_TRIES - 1):
        try:
            return run()
        except Exception as error:
            if _LATE not in f"{error} {error.__cause__}":
                raise
            _say("a Python process did not start in time: once more")
    return run()


def _of_rounds(kept: KeptRounds, contest: str, name: str, rounds: int) -> list[dict[str, Any]]:
    found = [kept.figures(OneRun(contest, name, number)) for number in range(1, rounds + 1)]
    return [figures for figures in found if figures is not None]


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
