"""A world that loses whole hosts as well, and that knows whose state was really lost and who has replayed what."""

from __future__ import annotations

from typing import Any

from tests.simulation.world import World

Place = tuple[str, str, int]


class GraphWorld(World):
    def __init__(self, seed: int, **given: Any) -> None:
        super().__init__(seed, **given)
        #: (operator, worker, incarnation) whose state was lost, or whose host went away
        self.gone: set[tuple[str, int, int]] = set()
        #: (operator, worker, incarnation, batch): batches that were applied after a later one was begun
        self.replayed: set[tuple[str, int, int, int]] = set()
        self.were_away: set[str] = set()
        self._newest = -1

    def _fail_task(self, where: str) -> None:
        assert self.task is not None
        if self.rng.random() < 0.2:
            # What waits beside the states for its way to the store goes with them.
            host = self.task[0]
            self.lose([place for place in self.memory if place[0] == host], f"{host} is lost with its spool at {where}")
        super()._fail_task(where)

    def lose(self, segments: list[Place], why: str) -> None:
        self._note_gone(segments)
        super().lose(segments, why)

    def _note_gone(self, segments: list[Place]) -> None:
        for place in segments:
            if place in self.memory:
                segment = self.memory[place]
                self.gone.add((place[1], place[2], segment.incarnation))
                if segment.secondary:
                    # It may have been promoted, without having heard of it.
                    self.gone.add((place[1], place[2], segment.incarnation + 1))

    def say(self, what: str) -> None:
        self.were_away |= self.away.keys()
        self._note_gone([place for place in self.memory if place[0] in self.away])
        super().say(what)

    def point(self, where: str) -> None:
        if where == "phase backing up" and self.task in self.memory:
            segment = self.memory[self.task]
            batch = segment.version + 1
            # A task that everybody has forgotten does what it likes, and nobody hears of it; a secondary is behind.
            if batch < self._newest and not self.quiet and not segment.secondary:
                self.replayed.add((self.task[1], self.task[2], segment.incarnation, batch))
            self._newest = max(self._newest, batch)
        super().point(where)
