"""The report of a study as one HTML file: no scripts, no network, plots inside."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from afspark.lab.findings import Findings, by_impact, by_recovery
from afspark.lab.observations import Rate
from afspark.lab.paper_table import paper_figures
from afspark.lab.tolerance_text import tolerance_text
from afspark.report.wording import number_text, seconds_text

#: A cell, and what a reader sees who asks for its reason.
Cell = str | tuple[str, str]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 76rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.facts, figcaption, td small { color: #6b6b6b; } p.advice { font-size: 1.1rem; }
table { border-collapse: collapse; margin: 0.6rem 0; }
th, td { text-align: left; padding: 0.3rem 0.9rem 0.3rem 0; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td { min-width: 3.2rem; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
.note { border-left: 4px solid #d95f02; padding-left: 0.8rem; }
"""

IMPROVEMENT, IMPROVED = "under-advice", "Measured again under this advice"

_FIGURES = {
    "graph": (
        "The pipeline",
        "The graph of the pipeline. Operators without a thick frame behave like the target named.",
    ),
    "quality-by-outage": (
        "Quality against outage",
        "Each line is an offset; dashed, where |C| is at least 0.9: the fitted curve (the paper's figure 8).",
    ),
    "quality-by-offset": (
        "Quality against offset",
        "The same outage at other places of the stream (the paper's figure 9).",
    ),
    "local-quality": (
        "Local quality over the stream",
        "At the offset with the largest I; another one may have a larger R. Grey: counts as normal. R covers erroneous"
        " sections, I sums their squared errors (the paper's figure 10).",
    ),
    "local-quality-by-outage": (
        "Local quality under longer outages",
        "The target with the highest impact (the paper's figure 11).",
    ),
    IMPROVEMENT: (
        "",
        "R and I of the longest outage without protection, and of real faults under the advised policies.",
    ),
}


def page_text(findings: Findings, plots: Mapping[str, Path]) -> str:
    """The page; ``plots`` are PNG files by name, which become part of it."""
    result = findings.result
    title = f"Assessment of {result.application}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="facts">{escape(_facts(findings))}</p>',
        f'<p class="advice"><strong>{escape(findings.advice.summary())}</strong></p>',
        *_warnings(findings),
        _figure("graph", plots),
        "<h2>Metrics</h2>",
        _metrics_table(findings),
        f"<p>{escape(_legend(findings))}</p>",
        *_undefined(findings),
        "<h2>Advice</h2>",
        _advice_table(findings),
        *_improvements(findings),
        _figure(IMPROVEMENT, plots),
        *(_figure(name, plots) for name in _FIGURES if name not in ("graph", IMPROVEMENT)),
        *_readings(findings),
        *_orders(findings),
        "<h2>Agreement with real queries</h2>",
        *_agreement(findings),
        *_real_faults(findings),
        "<h2>Targets</h2>",
        _table(
            ("operator", "measured at", "reason"),
            [(one.operator, one.target or "–", one.reason) for one in result.placements],
        ),
        "<h2>Settings</h2>",
        _table(("setting", "value"), [(name, str(value)) for name, value in result.settings.to_json().items()]),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _facts(findings: Findings) -> str:
    result, settings = findings.result, findings.result.settings
    pieces = [
        f"{_many(result.trials, 'trial')} and {_many(settings.golden_runs, 'golden run')}"
        f" in {seconds_text(result.seconds)}",
        _many(len(result.targets), "target"),
        f"score {settings.score}",
        f"{settings.fault}",
        f"{settings.items:,} items of input" if settings.items else "",
        f"seed {settings.seed}",
    ]
    return "; ".join(piece for piece in pieces if piece) + "."


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _warnings(findings: Findings) -> Iterable[str]:
    notes = [*findings.result.notes, *(note for notes in findings.notes.values() for note in notes)]
    return [f'<p class="note">{escape(note)}</p>' for note in notes]


def _legend(findings: Findings) -> str:
    settings = findings.result.settings
    return (
        "C: rank correlation between outage and quality. D: standard deviation of quality between offsets, and"
        " whether the analysis of variance accepts (A) or rejects (R) that the offset makes no difference"
        f" (α = {settings.alpha})."
        f" R: sections until {settings.percentile:g} % of those more than {settings.threshold:.0%} off are over."
        " I: sum of their squared errors. D, R and I under the longest outage; R and I each at the offset"
        " where it is largest."
    )


def _metrics_table(findings: Findings) -> str:
    paper = paper_figures(findings.result.targets)
    head = ["target", "C", "D", "R", "I", "longest outage"]
    if paper:
        head += ["paper: C", "D", "R", "I"]
    rows = []
    for target, metrics in findings.metrics.items():
        outage = metrics.outage
        span = f"{outage.seconds:g} s at the {outage.rate.value} rate, " if outage.seconds else ""
        doq = metrics.doq
        verdict = doq.verdict.value if doq.verdict else "undefined"
        row: list[Cell] = [
            target,
            (_figure_text(metrics.coq.value), metrics.coq.reason),
            (f"({_figure_text(doq.sigma)}, {verdict})", doq.reason),
            number_text(metrics.local.recovery),
            _figure_text(metrics.local.impact),
            f"{span}{outage.items:,} items",
        ]
        if target in paper:
            one = paper[target]
            row += [f"{one.coq:.2f}", f"({one.sigma:.2f}, {one.verdict})", f"{one.rlq}", f"{one.ilq:.2f}"]
        elif paper:
            row += ["–"] * 4
        rows.append(row)
    return _table(head, rows, numbers=range(1, 5) if not paper else (1, 2, 3, 4, 6, 7, 8, 9))


def _undefined(findings: Findings) -> Iterable[str]:
    """What of the table is no number, and why."""
    found = []
    for target, metrics in findings.metrics.items():
        found += [f"{target}, {reason}." for reason in (metrics.coq.reason, metrics.doq.reason) if reason]
        if metrics.local.unbounded:
            found.append(
                f"{target}: {metrics.local.unbounded:,} sections have a score where the golden one is 0;"
                " R counts them as erroneous, I leaves them out."
            )
    return [f"<p>{escape(text)}</p>" for text in found]


def _advice_table(findings: Findings) -> str:
    rows = []
    for one in findings.advice.operators:
        policy = "–" if one.tolerance is None else tolerance_text(one.tolerance).removesuffix("()")
        rows.append((one.operator, one.need.value, policy, one.reason, one.alternative))
    head = ["operator", "need", "policy", "because", "or"]
    kept = len(head) if any(one.alternative for one in findings.advice.operators) else len(head) - 1
    return _table(head[:kept], [row[:kept] for row in rows])


def _improvements(findings: Findings) -> Iterable[str]:
    if not findings.improvements:
        return
    yield f"<h2>{IMPROVED}</h2>"
    paper = paper_figures(findings.result.targets)
    head = ["operator", "R before", "R after", "I before", "I after", "how"]
    if paper:
        head += ["paper: R", "I"]
    rows = []
    for one in findings.improvements:
        before, after = one.before.local, one.after.local
        row: list[Cell] = [
            one.operator,
            number_text(before.recovery),
            number_text(after.recovery),
            _figure_text(before.impact),
            _figure_text(after.impact),
            one.note,
        ]
        if paper:
            its = paper.get(one.target)
            known = its is not None and its.rlq_after is not None
            row += [f"{its.rlq} → {its.rlq_after}", f"{its.ilq} → {its.ilq_after}"] if its and known else ["–", "–"]
        rows.append(row)
    yield _table(head, rows, numbers=(1, 2, 3, 4, 6, 7))


def _readings(findings: Findings) -> Iterable[str]:
    """What outages cost, read off the fitted curves."""
    if not findings.curves:
        return
    yield "<h2>What an outage costs</h2>"
    yield "<p>Quality of the affected section after an outage, by the fitted curve.</p>"
    for rate in (Rate.AVERAGE, Rate.PEAK):
        curves = {target: curve for target, curve in findings.curves.items() if rate in curve.rates}
        seconds = sorted(
            {
                outage.seconds
                for target in curves
                for outage in findings.result.observations[target].outages
                if outage.rate is rate and outage.seconds
            }
        )
        if not seconds:
            continue
        rows = [
            (target, curve.formula, f"{curve.deviation:.2f}", *(f"{curve.after(one, rate):.2f}" for one in seconds))
            for target, curve in curves.items()
        ]
        head = ("target", "quality after x items", "±", *(f"{one:g} s" for one in seconds))
        yield f"<h3>At the {rate.value} rate</h3>"
        yield _table(head, rows, numbers=range(2, len(head)))
    if not any(curve.rates for curve in findings.curves.values()):
        rows = [(target, curve.formula) for target, curve in findings.curves.items()]
        yield _table(("target", "quality after x items"), rows)


def _orders(findings: Findings) -> Iterable[str]:
    tried = findings.by_score()
    if len(tried) < 2:
        return
    yield "<h2>Order by other scores</h2>"
    rows = []
    for score, metrics in tried.items():
        impacts = [f"{target} {_figure_text(metrics[target].local.impact)}" for target in by_impact(metrics)]
        recoveries = [f"{target} {number_text(metrics[target].local.recovery)}" for target in by_recovery(metrics)]
        rows.append((score, ", ".join(impacts), ", ".join(recoveries)))
    yield _table(("score", "by impact I", "by recovery time R"), rows)


def _agreement(findings: Findings) -> Iterable[str]:
    samples = findings.result.samples
    if not samples:
        yield "<p>No trial was run again as a real streaming query.</p>"
        return
    agreeing = findings.result.agreeing
    verdict = "all" if agreeing == len(samples) else f"{agreeing} of {len(samples)}"
    yield f"<p>{len(samples)} trials were run again as real streaming queries; {verdict} agree.</p>"
    yield _table(
        ("target", "offset", "items lost", "repetition", "agrees", ""),
        [
            (
                one.target,
                f"{one.offset:,}",
                f"{one.outage.items:,}",
                str(one.repetition),
                "yes" if one.agrees else "NO",
                one.detail,
            )
            for one in samples
        ],
        numbers=(1, 2, 3),
    )


def _real_faults(findings: Findings) -> Iterable[str]:
    found = findings.result.real_faults
    if not found:
        return
    same = sum(one.unchanged for one in found)
    yield "<h2>Real faults under the pipeline's own tolerances</h2>"
    known = [one.within_bound for one in found if one.within_bound is not None]
    yield (
        f"<p>The output is the same after {same} of {len(found)}. {sum(known)} of {len(known)} that can be compared"
        " with what the query tells of its states are within that.</p>"
    )
    yield _table(
        ("what", "fault", "at item", "tolerance", "outcome", "within bound", "seconds"),
        [
            (
                one.subject,
                one.fault,
                f"{one.offset:,}",
                one.tolerance,
                one.outcome,
                {True: "yes", False: "NO", None: "–"}[one.within_bound],
                f"{one.seconds:.2f}",
            )
            for one in found
        ],
        numbers=(2, 6),
    )


def _figure(name: str, plots: Mapping[str, Path]) -> str:
    if name not in plots:
        return ""
    title, caption = _FIGURES[name]
    image = base64.b64encode(plots[name].read_bytes()).decode("ascii")
    head = f"<h2>{escape(title)}</h2>\n" if title else ""
    return (
        f"{head}<figure>\n"
        f'<img alt="{escape(caption, quote=True)}" src="data:image/png;base64,{image}" />\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: Iterable[int] = ()) -> str:
    right = set(numbers)

    def cells(tag: str, row: Sequence[Cell]) -> str:
        made = []
        for at, cell in enumerate(row):
            text, why = cell if isinstance(cell, tuple) else (cell, "")
            shown = ' class="number"' if at in right else ""
            shown += f' title="{escape(why, quote=True)}"' if why else ""
            made.append(f"<{tag}{shown}>{escape(text)}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    body = "\n".join(cells("td", row) for row in rows)
    return f"<table>\n<thead>{cells('th', head)}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _figure_text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
