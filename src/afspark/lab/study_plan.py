"""What a study is to do, as plain values that travel to whoever runs a part of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from afspark.lab.application import Application, Builder
from afspark.lab.function_code import function_digest
from afspark.lab.interleaving import Interleaving, interleave
from afspark.lab.outage_spans import InputRate
from afspark.lab.scores import OutputScore, OwnScore
from afspark.lab.sections import AffectedRange, AffectedRows, LocalSections
from afspark.lab.study_inputs import event_times
from afspark.lab.targets import Target
from afspark.sources.recorded_items import RecordedItems, record

#: An affected section as a user may give it; None: the rows that the longest outage changes.
Affected = AffectedRange | AffectedRows | None


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """A checked study. ``inputs`` are files with the items as they were recorded, one for each stream."""

    builder: Builder
    inputs: tuple[str, ...]
    sizes: tuple[int, ...]
    targets: tuple[Target, ...]
    offsets: tuple[int, ...]
    #: those below 1 are parts of the items at the target
    outage_items: tuple[float, ...] = ()
    outage_seconds: tuple[float, ...] = ()
    rate: InputRate | None = None
    time: str | None = None
    fault: str = "loss"
    repetitions: int = 5
    golden_runs: int = 5
    seed: int = 0
    jitter: int = 0
    batch_items: int = 50_000
    #: into how many pieces a batch of an input is divided, which workers share
    pieces: int = 1
    scores: tuple[OutputScore, ...]
    #: the column that identifies rows of the output; None: nothing does
    key: str | None = None
    sections: LocalSections | None = None
    affected: Affected = None
    #: what pipeline and inputs are
    identity: str = ""
    #: where golden runs and results of trials are kept
    work: Path = field(default_factory=Path)

    def interleaving(self, repetition: int) -> Interleaving:
        """How the items of a repetition come."""
        return interleave(
            self.sizes,
            self.offsets,
            batch_items=self.batch_items,
            seed=self.seed * 1_000_003 + repetition,
            jitter=self.jitter,
            times=self._times() if self.time is not None and len(self.sizes) > 1 else None,
        )

    def application(self, repetition: int) -> Application:
        """The pipeline over the items of a repetition, which are recorded now if they are not yet."""
        folder = self.folder(repetition)
        paths = [folder / f"input{number}.arrow" for number in range(len(self.inputs))]
        if not all(path.exists() for path in paths):
            folder.mkdir(parents=True, exist_ok=True)
            interleaving = self.interleaving(repetition)
            for number, path in enumerate(paths):
                items = read_items(self.inputs[number])
                unfinished = path.with_suffix(".new")
                record(unfinished, items.schema, interleaving.batches(number, items), self.pieces)
                unfinished.replace(path)
        return Application.built(self.builder, [RecordedItems(str(path)) for path in paths])

    def folder(self, repetition: int) -> Path:
        return self.work / f"repetition-{repetition}"

    def _times(self) -> list[npt.NDArray[np.float64]]:
        assert self.time is not None
        return [event_times(read_items(path), self.time) for path in self.inputs]

    def fingerprint(self) -> str:
        """What results that were kept depend on; a study with another one does not go on from them."""
        facts = [
            self.sizes,
            self.targets,
            self.offsets,
            self.outage_items,
            self.outage_seconds,
            self.rate,
            self.fault,
            self.seed,
            self.jitter,
            self.batch_items,
            [
                (score.name, function_digest(score.function) if isinstance(score, OwnScore) else "")
                for score in self.scores
            ],
            self.key,
            self.sections,
            self._affected_facts(),
            self.time,
            self.identity,
        ]
        return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()

    def _affected_facts(self) -> object:
        return function_digest(self.affected.predicate) if isinstance(self.affected, AffectedRows) else self.affected


def read_items(path: str) -> pa.Table:
    """Items that the study has stored."""
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()
