"""Carries out backup plans: what is written to the store before a batch, or a step of one, is final."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from afspark.model.windows import PaneReport
from afspark.protocol.ports import feedback_for
from afspark.protocol.state_labels import label
from afspark.resident.storage import StateStorage
from afspark.store import ObjectRef, object_name, seal
from afspark.task.outbox import Output
from afspark.task.pane_states import PaneStates
from afspark.task.steps import BatchSteps
from afspark.task.task_context import TaskContext
from afspark.task.unnamed_backups import PROGRESS, THETA, attempt_of

Images = dict[str, pa.RecordBatch]


class BackupTask:
    """Writes the backups of one worker in one batch."""

    def __init__(self, task: TaskContext, steps: BatchSteps) -> None:
        self.config, self.request, self.steps = task.config, task.request, steps
        self._recheck = task.request.recheck

    def back_up(self, home: StateStorage, panes: PaneStates, output: Output, *, damaged: bool) -> bool:
        """Begins to write what must be durable before the step at work is final; whether its feedback will be."""
        request = self.request
        # What follows a damaged object in a chain is never read, so a new chain has to start here.
        full = request.full or damaged
        full = full and not any(backup.full for backup in self.steps.writes.all)
        if panes.fading is not None and panes.fading.moved:
            # Pairs would follow backups in other units.
            full = min(request.theta.values()) < math.inf
        tick = self.steps.tick(output.panes)
        images: Images = {}
        for name, pane, state in panes.named():
            state.settle()
            pairs = state.issue(self._theta(name, pane, panes, tick), everything=self._recheck)
            if full:
                images[label(name, pane)] = panes.stamped(state.dump())
            elif pairs is not None:
                images[label(name, pane)] = panes.stamped(pairs)
        waiting = sum(batch.num_rows for sent in output.feedback.values() for batch in sent)
        durable = waiting > request.items
        if durable:
            for target, sent in output.feedback.items():
                for number, batch in enumerate(sent):
                    images[f"{feedback_for(target)}@{request.batch}@{number}"] = batch
        if images or self.steps.needs_backup(output.panes):
            self._write(home, images, full=full, seen=output.panes)
        return durable or waiting == 0

    def step_closed(self) -> None:
        self._recheck = False

    def make_sure(self, home: StateStorage, panes: PaneStates) -> None:
        """Makes true what a resumed state believes.

        It takes a backup for durable that may not be. A whole image of what it takes for durable is written before
        any item that counts on it is confirmed.
        """
        if self.steps.progress.writing:
            images = {label(name, pane): panes.stamped(state.dump()) for name, pane, state in panes.named()}
            self._write(home, images, full=True, seen=self.steps.progress.panes)
            self.steps.writes.wait()

    def _theta(self, state: str, pane: int | None, panes: PaneStates, tick: int | None) -> float:
        request = self.request
        if panes.fading is not None:
            return panes.fading.threshold(request.theta[state], tick)
        if pane is None:
            return request.theta[state]
        return request.pane_theta.get(pane, request.theta)[state]

    def _write(
        self, home: StateStorage, images: Mapping[str, pa.RecordBatch], *, full: bool, seen: PaneReport | None
    ) -> None:
        # It names those before it, so they have to be durable.
        self.steps.await_durable(None)
        cells = sum(image.num_rows for image in images.values())
        attempt = attempt_of(self.steps.number_backup(home))
        request, config = self.request, self.config
        name = object_name(
            config.epoch, config.operator_name, request.worker, request.incarnation, request.batch, attempt
        )
        data = seal(self._meta(full, cells, seen), images)
        self.steps.writes.begin(ObjectRef.of(name, data, cells=cells, full=full), data)
        self.steps.backed_up(seen)

    def _meta(self, full: bool, cells: int, seen: PaneReport | None) -> dict[str, Any]:
        progress = self.steps.progress_with(seen)
        steps: dict[str, Any] = {}
        if progress is not None:
            steps = {PROGRESS: progress.to_text(), THETA: dict(self.request.theta), "cells": cells}
        return steps | {
            "query": self.config.query_id,
            "operator": self.config.operator_name,
            "worker": self.request.worker,
            "incarnation": self.request.incarnation,
            "batch": self.request.batch,
            "full": full,
        }
