"""The scores of a trial and of its golden run: over the affected section, and over local sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.lab.fault_trials import TrialOutput
from afspark.lab.golden_runs import GoldenRun
from afspark.lab.observations import Scores
from afspark.lab.scores import OutputScore
from afspark.lab.sections import AffectedRows, FaultSpan, LocalSections, Numbers, SectionsByRows

#: The place of a row in the golden output.
_ROW = "afspark.row"


class AffectedSection(Protocol):
    """Which rows of an output a fault may have changed."""

    def select(self, output: pa.Table, span: FaultSpan) -> pa.Table: ...


@dataclass(frozen=True)
class LocalScores:
    """Scores of local sections, from ``first`` on; all others are those of the golden run."""

    first: int
    values: Scores

    def over(self, golden: Scores) -> Scores:
        """The scores of all sections."""
        whole = golden.copy()
        whole[self.first : self.first + len(self.values)] = self.values
        return whole

    def to_json(self) -> dict[str, Any]:
        return {"first": self.first, "values": self.values.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LocalScores:
        return cls(data["first"], np.array(data["values"], dtype=np.float64))


class GoldenScores:
    """The golden output of one repetition, divided into sections."""

    def __init__(self, golden: GoldenRun, sections: LocalSections | None, count: int | None = None) -> None:
        self.golden, self.sections = golden, sections
        self._sections_selected: dict[tuple[int, FaultSpan], pa.Table] = {}
        #: how many sections there are; None: as many as this run has
        self._count = count

    @cached_property
    def numbers(self) -> Numbers:
        """The section of each row."""
        assert self.sections is not None
        return self.sections.numbers(self.golden.output, self._count)

    @cached_property
    def count(self) -> int:
        if self.sections is None:
            return 0
        return self.sections.count(self.golden.output) if self._count is None else self._count

    def local(self, score: OutputScore) -> Scores:
        """The score of every section."""
        if self.sections is None:
            return np.zeros(0)
        output = self.golden.output
        return score.by_section(output, self.numbers, self.count, output, self.numbers)

    def affected(self, scores: Sequence[OutputScore], section: AffectedSection, span: FaultSpan) -> dict[str, float]:
        """The scores of an affected section."""
        rows = section.select(self.golden.output, span)
        return {score.name: score.of(rows, rows) for score in scores}

    def trial_affected(
        self, scores: Sequence[OutputScore], section: AffectedSection, span: FaultSpan, trial: TrialOutput
    ) -> dict[str, float]:
        """The scores of an affected section in a trial."""
        golden = self._selected(section, span)
        if isinstance(section, AffectedRows):
            # It may look at all rows to decide about one.
            rows = section.select(trial.whole(), span)
        else:
            begin, end = trial.replaced
            places = golden[_ROW].to_numpy()
            parts = [golden.filter(pa.array(places < begin)), golden.filter(pa.array(places >= end))]
            before, after = (part.drop_columns([_ROW]) for part in parts)
            rows = pa.concat_tables([before, section.select(trial.own, span), after])
        bare = golden.drop_columns([_ROW])
        return {score.name: score.of(rows, bare) for score in scores}

    def _selected(self, section: AffectedSection, span: FaultSpan) -> pa.Table:
        """The golden rows of a section, with their places in the output."""
        if (id(section), span) not in self._sections_selected:
            output = self.golden.output
            numbered = output.append_column(_ROW, pa.array(np.arange(output.num_rows)))
            self._sections_selected = {(id(section), span): section.select(numbered, span)}
        return self._sections_selected[id(section), span]

    def trial_local(self, scores: Sequence[OutputScore], trial: TrialOutput) -> dict[str, LocalScores]:
        """The scores of the sections that a trial may have changed."""
        if self.sections is None or not self.count:
            return {score.name: LocalScores(0, np.zeros(0)) for score in scores}
        if isinstance(self.sections, SectionsByRows):
            output = trial.whole()
            numbers = self.sections.numbers(output, self.count)
            touched = (0, self.count)
        else:
            output, numbers, touched = self._touched(trial)
        first, last = touched
        kept = (self.numbers >= first) & (self.numbers < last)
        compares = any(score.compares for score in scores)
        golden = self.golden.output.filter(pa.array(kept)) if compares else None
        golden_numbers = self.numbers[kept] - first if compares else None
        return {
            score.name: LocalScores(
                first,
                score.by_section(
                    output,
                    numbers - first,
                    last - first,
                    golden if score.compares else None,
                    golden_numbers if score.compares else None,
                ),
            )
            for score in scores
        }

    def _touched(self, trial: TrialOutput) -> tuple[pa.Table, Numbers, tuple[int, int]]:
        """All rows of a trial in the sections that some of its own rows, or the golden ones in their place, are in."""
        assert self.sections is not None
        begin, end = trial.replaced
        own = self.sections.numbers(trial.own, self.count)
        replaced = self.numbers[begin:end]
        both = [part for part in (own, replaced) if len(part)]
        if not both:
            return trial.own, own, (0, 0)
        first = int(min(part.min() for part in both))
        last = int(max(part.max() for part in both)) + 1
        others = self._within(first, last)
        others[begin:end] = False
        before, after = others[:begin], others[end:]
        output = self.golden.output
        parts = [
            output.slice(0, begin).filter(pa.array(before)),
            trial.own,
            output.slice(end).filter(pa.array(after)),
        ]
        numbers = np.concatenate([self.numbers[:begin][before], own, self.numbers[end:][after]])
        return pa.concat_tables(parts), numbers, (first, last)

    def _within(self, first: int, last: int) -> npt.NDArray[np.bool_]:
        return (self.numbers >= first) & (self.numbers < last)
