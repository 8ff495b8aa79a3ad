"""The steps of one worker's batch: what of it is final, which backups it counts on, what is confirmed.

Only pushed items come in several steps. A batch of any other items is one step, and its progress says nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from afspark.model.windows import PaneReport
from afspark.numbers import NO_INCARNATION
from afspark.push.wire.worker_messages import BackupNumber
from afspark.resident.storage import StateStorage
from afspark.store import ObjectRef
from afspark.store.quarantine import BadBatch
from afspark.task.backup_writes import BackupWrites
from afspark.task.damage_note import note_damage
from afspark.task.intake import Start
from afspark.task.step_progress import StepProgress
from afspark.task.task_context import TaskContext

LOG = logging.getLogger("afspark")


class BatchSteps:
    """How far the batch at work has come, and the backups on their way to the store."""

    def __init__(self, task: TaskContext, damaged: tuple[str, ...] = ()) -> None:
        self.task, self.request, self.feed = task, task.request, task.feed
        #: damage that no bound covers, met in this batch
        self.damaged = damaged
        self.progress = StepProgress()
        self.writes = self._writes()
        #: what the newest backup of a step says of the panes, in case it is all that is left
        self._named: PaneReport | None = None
        self._supersede = False
        self._left_out = False

    def _writes(self, durable: tuple[ObjectRef, ...] = ()) -> BackupWrites:
        return BackupWrites(self.task.config.store, durable, self.task.environment.start_write)

    def resume(self, home: StateStorage) -> None:
        """Takes up a batch where an earlier process left it, or begins it."""
        if self.feed.replayable:
            return
        note = home.step_note(self.request.batch)
        self.progress = StepProgress() if note is None else StepProgress.from_text(note.decode())
        if home.step or self.progress.backups:
            self.writes = self._writes(self.progress.backups)
            # A backup of a step that was never closed must not be taken for the newest one.
            self._supersede = True
        else:
            self.progress = replace(self.progress, positions=self.feed.start)
        self.feed.resume(self.progress, self._start(home), stepped=self.task.in_steps)

    def _start(self, home: StateStorage) -> Start:
        newest = max(self.progress.newest, BackupNumber(self.request.batch, NO_INCARNATION, 0))
        return Start(
            durable=newest,
            resumed=home.step > 0,
            restored=home.step == 0,
            losses_counted=self.request.losses_counted(exact=self.task.config.exact),
            damaged=bool(self.progress.damaged or self.damaged),
        )

    def admit_damage(self, home: StateStorage) -> None:
        """Damaged backups of steps, whose items were confirmed nevertheless, are no loss that any bound covers."""
        damaged = self.progress.damaged
        if self.feed.misses_backup and not set(damaged) <= set(self.damaged):
            self.damaged = tuple(dict.fromkeys((*self.damaged, *damaged)))
            note_damage(home, self.request.batch, self.damaged)

    def is_first(self, home: StateStorage) -> bool:
        """Whether the state lacks what comes before the items of the batch; one restored inside the batch has it."""
        return home.step == 0 and not self.progress.backups

    def leave_out(self, bad: Sequence[BadBatch]) -> None:
        """Notes the items of this step that the operator could not take."""
        self._left_out = bool(bad)
        self.progress = replace(self.progress, bad=(*self.progress.bad, *bad))

    def close(self, home: StateStorage, seen: PaneReport | None, *, durable: bool) -> None:
        """Makes the step final; ``durable``: so are its backups."""
        self.progress = self._reached(seen, writing=not durable)
        home.close_step(self.request.batch, self.progress.to_text().encode())
        LOG.debug(
            "Worker %d has closed step %d of batch %d at %s, backup %s.",
            self.request.worker,
            home.step,
            self.request.batch,
            self.progress.positions,
            tuple(self.progress.newest),
        )

    def await_durable(self, seconds: float | None) -> bool:
        """Whether the backups of closed steps are durable, after so many seconds; then their items are confirmed."""
        durable = self.writes.wait(seconds)
        if durable:
            self.feed.confirm(self.progress.positions, self.progress.newest)
        return durable

    def number_backup(self, home: StateStorage) -> int:
        """The number of the next backup among those of this incarnation; 0 where nobody counts them."""
        if self.feed.replayable:
            return 0
        newest = BackupNumber(self.request.batch, self.request.incarnation, home.number_backup())
        self.progress = replace(self.progress, newest=newest)
        return newest.number

    def progress_with(self, seen: PaneReport | None) -> StepProgress | None:
        """How far the batch has come with the step at work, for the backup of that step; None if nobody needs it."""
        return None if self.feed.replayable or self.task.config.retained else self._reached(seen)

    def _reached(self, seen: PaneReport | None, *, writing: bool = False) -> StepProgress:
        """How far the batch has come, with all that is not final yet."""
        done = replace(self.progress, panes=seen, backups=self.writes.durable, writing=writing, uncovered=self.damaged)
        return self.feed.progress(done)

    def backed_up(self, seen: PaneReport | None) -> None:
        """Notes that a backup of the step at work is on its way."""
        self._supersede = False
        self._named = seen or PaneReport(worker=self.request.worker)

    def needs_backup(self, seen: PaneReport | None) -> bool:
        """Whether a step that changes nothing much is backed up all the same.

        Items that a receiver has in its log must not be replayed onto a state that had them: their end is kept. And a
        loss must be counted by whoever finds nothing but backups: so the first step of an incarnation leaves one
        before its items are confirmed, and one that opens a pane names it. Where nothing may be lost, nothing is
        confirmed that a backup does not have.
        """
        if not self.feed.stepped:
            return self._supersede
        logged = self.feed.stop_logging()
        named = self._no_news if self.task.config.exact else self._is_named(seen)
        # What was left out is known with the positions alone, so these must not go back behind it.
        return logged or self._supersede or self._left_out or not named

    @property
    def _no_news(self) -> bool:
        return self.feed.positions == self.progress.positions

    def _is_named(self, seen: PaneReport | None) -> bool:
        if self._named is None and not self.request.counts:
            return False
        window = self.task.config.window
        if window is not None and window.by == "count":
            # How many items were counted must not go back, or all windows after it would move.
            return self._no_news
        if seen is None or window is None or not window.has_panes:
            return True
        named = frozenset() if self._named is None else self._named.panes
        return seen.panes <= (named | self.request.batch_time.exposed)

    def tick(self, seen: PaneReport | None) -> int | None:
        """The tick of a decaying window that a loss of the present state would be counted at, or one before it."""
        window = self.task.config.window
        if window is None or window.has_panes:
            return None
        # Of the times in steps nobody but the store hears before they are final.
        return self.request.batch_time.tick(window, self._named if self.task.in_steps else seen)
