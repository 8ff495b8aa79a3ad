"""Whether the workers of an operator have applied the same items. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from afspark.protocol.reports import TaskReport


def digests_agree(reports: Iterable[TaskReport], produced: Mapping[str, str] | None = None) -> bool:
    """Whether all workers applied the same output of every map partition, and what ``produced`` says it is now.

    After a fetch failure Spark recomputes lost map outputs. A map function that is not deterministic may then
    give some workers other items than those the rest has applied already; so may an operator upstream that lost
    its state and has applied the batch a second time.
    """
    reports = list(reports)
    seen = dict(produced or {})
    return len({frozenset(report.consumed) for report in reports}) <= 1 and all(
        seen.setdefault(partition, digest) == digest
        for report in reports
        for partition, digest in report.consumed.items()
    )
