"""An accuracy experiment: many seeds with ten failures each, under the papers' settings."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afspark.bench.accuracy.trial import FAILURES, AccuracyStudy, Outcome, trial
from afspark.bench.drawing import Curve, curves
from afspark.bench.markdown import table
from afspark.bench.papers import ACCURACY
from afspark.bench.rig import Rig


@dataclass(frozen=True)
class Campaign:
    """What an experiment module needs: ``promise`` says what is observed and promised."""

    algorithm: str
    study: Callable[[], AccuracyStudy]
    score: str
    promise: str

    def measure(self, rig: Rig) -> dict[str, Any]:
        """Accuracy after failures, and bounds."""
        return measured(rig, self.study())

    def page(self, found: dict[str, Any]) -> str:
        return told(found, self.algorithm, self.score, self.promise)

    def draw(self, found: dict[str, Any], path: Path) -> str:
        return drawn(found, path, self.algorithm, self.score)


def measured(rig: Rig, study: AccuracyStudy) -> dict[str, Any]:
    """All that is known of an algorithm under all settings of the study."""
    undisturbed = trial(rig.spark, study, next(iter(study.tolerances.values())), seed=0, failures=0)
    free = [found["score"] for found in undisturbed.scored]
    found: dict[str, Any] = {
        "items": study.items,
        # To compare with at the same place of the stream.
        "free": free,
        "free_at_the_end": free[-1],
        "settings": {},
    }
    for name, tolerance in study.tolerances.items():
        outcomes = []
        for seed in range(1, rig.seeds + 1):
            outcomes.append(trial(rig.spark, study, tolerance, seed))
            tell(name, outcomes[-1])
        found["settings"][name] = {"summary": summary(study, outcomes), "trials": [one.to_json() for one in outcomes]}
    return found


def tell(setting: str, outcome: Outcome) -> None:
    """A line on the terminal."""
    last = outcome.scores[-1]
    print(
        f"  {setting:18} seed {outcome.seed:3d}: score {last['score']:.4f} after {last['failures']:.0f} failures, "
        f"observed {outcome.verdict['observed']:,.4g}, promised {outcome.verdict['promised']:,.4g}, "
        f"{'held' if outcome.verdict['held'] else 'BROKEN'}",
        file=sys.stderr,
        flush=True,
    )


def summary(study: AccuracyStudy, outcomes: list[Outcome]) -> dict[str, Any]:
    """Mean and worst over seeds by number of failures, and whether every promise was kept."""
    worst = min if study.more_is_better else max
    by_failures = {}
    for count in range(FAILURES + 1):
        scores = [found["score"] for one in outcomes for found in one.scores if found["failures"] == count]
        places = [found["batch"] for one in outcomes for found in one.scores if found["failures"] == count]
        if scores:
            by_failures[count] = {
                "mean": statistics.fmean(scores),
                "worst": worst(scores),
                "seeds": len(scores),
                "batch": statistics.median(places),
            }
    verdicts = [one.verdict for one in outcomes]
    recoveries = [seconds for one in outcomes for seconds in one.recoveries]
    return {
        "by_failures": by_failures,
        "held": sum(int(verdict["held"]) for verdict in verdicts),
        "seeds": len(verdicts),
        "observed": max(verdict["observed"] for verdict in verdicts),
        "realised": max(verdict["realised"] for verdict in verdicts),
        "promised": verdicts[0]["promised"],
        "least": {
            name: min(verdict[name] for verdict in verdicts) for name in ("recall", "inside") if name in verdicts[0]
        },
        "recovery_seconds": statistics.median(recoveries),
    }


def told(found: dict[str, Any], algorithm: str, measure: str, promise: str) -> str:
    """The section about an algorithm; ``promise`` says what is observed and promised."""
    papers = ACCURACY[algorithm]
    text = (
        f"{found['items'] / 1e6:,.0f} million generated items in 22 batches, two workers, ten system failures at moments "
        f"that the seed draws: every worker's state is destroyed and its process gets SIGKILL while it is applying, "
        f"backing up, recovering, or between that, or after the results were made. The stream is the same for all seeds. "
        f"Score: {measure}. Throughput under the same settings is in the first section.\n\n"
    )
    rows = []
    for setting, part in found["settings"].items():
        sums = part["summary"]
        by_failures = {int(count): one for count, one in sums["by_failures"].items()}
        last = by_failures[FAILURES]
        before, after = papers[setting]
        rows.append(
            [
                setting,
                f"{found['free_at_the_end']:.2%}",
                *(f"{by_failures[count]['mean']:.2%}" if count in by_failures else "" for count in (1, 2, 5)),
                f"{last['mean']:.2%}",
                f"{last['worst']:.2%}",
                f"{before:.1%} → {after:.1%}",
            ]
        )
    head = [
        "setting",
        "no failure",
        "mean after 1",
        "2",
        "5",
        "10",
        "worst seed after 10",
        "papers: none → 10",
    ]
    text += table(head, rows)
    rows = []
    for setting, part in found["settings"].items():
        sums = part["summary"]
        rows.append(
            [
                setting,
                f"{sums['held']} of {sums['seeds']}",
                f"{sums['observed']:,.4g}",
                f"{sums['realised']:,.4g}",
                f"{sums['promised']:,.4g}",
                ", ".join(f"{name} {least:g}" for name, least in sums["least"].items()),
                f"{sums['recovery_seconds']:.2f} s",
            ]
        )
    head = ["setting", "bounds held", "most observed", "most realised", "promised", "least of any seed", "recovery"]
    return text + f"{promise}\n\n" + table(head, rows)


def drawn(found: dict[str, Any], path: Path, algorithm: str, measure: str) -> str:
    """Mean and worst of the seeds against the number of failures, next to the papers'."""
    free = found["free"]
    lines = []
    for setting, part in found["settings"].items():
        by_failures = {int(count): one for count, one in part["summary"]["by_failures"].items()}
        counts = sorted(by_failures)
        lines.append(
            Curve(
                setting,
                counts,
                [by_failures[count]["mean"] for count in counts],
                worst=[by_failures[count]["worst"] for count in counts],
            )
        )
    places = [int(by_failures[count]["batch"]) for count in counts]
    undisturbed = Curve("no failures, same place in the stream", counts, [free[place] for place in places], dashed=True)
    papers = {setting: (before, after) for setting, (before, after) in ACCURACY[algorithm].items()}
    curves(path, [undisturbed, *lines], papers, title=f"{algorithm}: {measure}", label="system failures so far")
    return f"{measure} after failures: mean of all seeds (lines) and the worst of them (bands), and the same stream without failures (dashed); right: the papers' figures"
