"""A pipeline that is not the one its checkpoint was last started with: what is told, and what becomes durable of it.

The identity of the query says which operators have started with an empty state, and in which epoch. So one write
decides whether a change has happened: records of earlier epochs say nothing of these operators, whoever reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from afspark.graph.pipeline import Pipeline
from afspark.store import CommitRecord, QueryIdentity, RecordLog, Store
from afspark.store.identity import changes_between, write_identity
from afspark.store.jsontext import from_json, to_json
from afspark.store.naming import EpochId
from afspark.store.pipeline_changes import ChangeFinding, ChangeVerdict, changed_only

LOG = logging.getLogger("afspark")


@dataclass(frozen=True)
class PipelineChange:
    """What a start makes of the pipeline that its checkpoint describes; no findings: nothing has changed."""

    findings: tuple[ChangeFinding, ...]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, identity: QueryIdentity, pipeline: Pipeline, discard: frozenset[str]) -> PipelineChange:
        # As they come back from the store.
        settings = from_json(to_json(pipeline.settings()))
        return cls(tuple(changed_only(changes_between(identity.settings, settings, discard))), settings)

    @property
    def is_structural(self) -> bool:
        """Whether operators are added or removed, start with an empty state, or read from others than before."""
        return any(one.is_structural for one in self.findings)

    @property
    def structural_text(self) -> str:
        """The first reason for that."""
        return next((one.text.rstrip(".") for one in self.findings if one.is_structural), "")

    def tell(self) -> None:
        """Logs one line for everything that was compared."""
        for one in self.findings:
            loses = one.verdict in (ChangeVerdict.ANEW, ChangeVerdict.DROPPED)
            LOG.log(logging.WARNING if loses else logging.INFO, "The pipeline has changed. %s", one.line)

    def make(
        self, store: Store, before: QueryIdentity, after: QueryIdentity, take_back: Callable[[], None]
    ) -> QueryIdentity:
        """Makes the pipeline that of the checkpoint, before any of its batches runs; the identity from now on.

        ``take_back`` undoes the batch that a driver before may have begun with the old one.
        """
        self.tell()
        if self.is_structural:
            take_back()
        if after != before:
            write_identity(store, after)
        return after

    @property
    def done(self) -> PipelineChange:
        """What is left of the change once it is made."""
        return PipelineChange((), self.settings)

    def applied_to(self, identity: QueryIdentity, epoch: int) -> QueryIdentity:
        """The identity of the query from the epoch of that number on."""
        begun = {one.operator: epoch for one in self.findings if one.verdict is ChangeVerdict.ANEW and one.operator}
        gone = {one.operator for one in self.findings if one.verdict is ChangeVerdict.DROPPED}
        before = {name: since for name, since in identity.anew.items() if name not in gone}
        return replace(identity, settings=dict(self.settings), anew={**before, **begun})


def starting_empty(identity: QueryIdentity, record: CommitRecord | None) -> frozenset[str]:
    """The operators of whose state ``record`` says nothing, because they have started with an empty one since."""
    epoch = EpochId.parse(record.epoch) if record else None
    return frozenset(name for name, since in identity.anew.items() if epoch is None or epoch.number < since)


def beginning(identity: QueryIdentity, empty: frozenset[str], log: RecordLog) -> frozenset[str]:
    """Those of the operators that ``empty`` names which begin with an empty state now, because no record of theirs was
    ever written. Where records cannot be read nobody knows that of earlier starts: then their states are lost.
    """
    return frozenset(name for name in empty if not log.damaged or identity.anew[name] == log.epoch_number)


def without(record: CommitRecord | None, operators: frozenset[str]) -> CommitRecord | None:
    """The record as if it did not know these operators."""
    if record is None or operators.isdisjoint(record.operators):
        return record
    return replace(record, operators={name: one for name, one in record.operators.items() if name not in operators})
