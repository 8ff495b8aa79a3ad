"""The world of a pushed stream: hosts and their clocks, receivers, producers, and what befalls whoever is at work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from afspark.protocol.requests import TaskRequest
from tests.simulation.fibers import Fiber
from tests.simulation.pushed.moments import Dice, Moments, name_of
from tests.simulation.pushed.schedule import PushedSchedule
from tests.simulation.world import EAGER_IN_RECOVERY, DriverKilled, Killed, TaskKilled, World

#: Seconds that a call to a receiver takes.
CALL_SECONDS = 0.02
#: The driver waits for as long when a batch has failed again and again.
LONG_SECONDS = 0.5
#: Failures where a schedule hunts are so much more likely than elsewhere.
EAGER_WHERE_HUNTED = 10.0
LAZY_ELSEWHERE = 4.0


def plain(where: str) -> str:
    """A moment's name without the parts of objects' names that are random."""
    act, put, name = where.partition("put ")
    return f"{act}{put}{name.removeprefix('afspark/').split('/', 1)[0]}" if put else where


#: What comes to pass elsewhere than at a point in the code.
_SELF_MADE = ("store", "stall", "clock")


class ReceiverKilled(Killed):
    """The process of a receiver, in the middle of a write to its log."""


class PushedWorld(World):
    """``only``: names of the events that come to pass, of all that the seed has; None: all of them."""

    def __init__(self, schedule: PushedSchedule, only: frozenset[str] | None = None) -> None:
        super().__init__(schedule.seed, hosts=schedule.hosts, failures=schedule.failures, rate=schedule.rate)
        self.schedule, self.only = schedule, only
        self.dice = Dice()
        self.rng = self.dice
        self.moments = Moments(schedule.seed)
        #: (name, what) of everything that went wrong
        self.events: list[tuple[str, str]] = []
        self.now = 1000.0
        self.skews: dict[str, float] = {}
        #: writes of the process at work that nobody has waited for
        self.under_way: list[Any] = []
        #: all receivers that ever were
        self.endpoints: list[Any] = []
        self.late: list[Callable[[], None]] = []
        self.fiber: Fiber | None = None
        self.stalled: list[tuple[Fiber, str]] = []
        self._patience = 0
        self._spared = schedule.spared
        self._living = False
        #: seconds that a call to a receiver takes
        self.call_seconds = CALL_SECONDS
        #: what goes on beside tasks and driver: producers send, receivers write their logs
        self.others: Callable[[], None] = lambda: None
        self.kill_receiver: Callable[[str], bool] = lambda why: False
        self.kill_producer: Callable[[str], bool] = lambda why: False
        self.receiver_at_work = False

    # --- time -----------------------------------------------------------------------------------------------

    def wall(self) -> float:
        """What the clock on the wall of the host at work says."""
        return self.now + self.skews.get(self.host, 0.0)

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)
        # Who holds others up does not do so for ever.
        while seconds >= LONG_SECONDS and self.stalled and not self.dying:
            self._wake(to_its_end=True)
        self.wake_zombies()
        self.live()

    def live(self) -> None:
        """Whoever is neither task nor driver does something."""
        if self._living or self.dying:
            return
        self._living = True
        before = self.host, self.task, self.recovering
        try:
            self.task, self.recovering = None, False
            for put in list(self.late):
                if self.chance("a late write lands") < 0.3:
                    self.late.remove(put)
                    put()
            self.others()
        finally:
            self.host, self.task, self.recovering = before
            self._living = False

    # --- chance ---------------------------------------------------------------------------------------------

    def chance(self, where: str) -> float:
        return self.dice.at(self.moments.next(where)).random()

    def new_batch(self) -> None:
        super().new_batch()
        self.moments.new_batch()

    def counted_failures(self, weight: float = 1.0, where: str = "put") -> bool:
        if self.dying or self.quiet:
            return False
        if self.failures <= 0:
            return False
        if self._spared > 0:
            self._spared -= 1
            return False
        where = plain(where)
        moment = self.moments.next(where)
        self.dice.at(moment)
        chance = self.rate * weight * (EAGER_IN_RECOVERY if self.recovering else 1.0)
        hunted = self.schedule.hunted
        if hunted is not None:
            chance = chance * EAGER_WHERE_HUNTED if where.startswith(hunted) else chance / LAZY_ELSEWHERE
        if self.dice.random() >= chance or (self.only is not None and name_of(moment) not in self.only):
            return False
        self.failures -= 1
        self.events.append((name_of(moment), where))
        return True

    def point(self, where: str) -> None:
        self._stand_still()
        if self.counted_failures(where=where):
            self.fail(where)

    # --- what goes wrong ------------------------------------------------------------------------------------

    def fail(self, where: str) -> None:
        if self.receiver_at_work:
            self.say(f"the receiver dies at {where}")
            raise ReceiverKilled
        trouble = self.dice.choice(
            [one for one in self.schedule.troubles if one not in ("store", "stall")] or ["process"]
        )
        where = plain(where)
        self.events[-1] = (self.events[-1][0], f"{trouble} at {where}")
        getattr(self, f"_{trouble}")(where)

    def _who(self) -> str:
        return "the driver" if self.task is None else f"{self.task[1]}/{self.task[2]} on {self.task[0]}"

    def _process(self, where: str) -> None:
        if self.task is None:
            self._driver(where)
        self._freeze()
        self.say(f"the process of {self._who()} dies at {where}")
        self._die(TaskKilled)

    def _folder(self, where: str) -> None:
        if self.task is None:
            held = sorted(self.memory)
            self.lose([self.dice.choice(held)] if held else [], f"state is lost at {where}")
            return
        self._freeze()
        self.lose([self.task], f"{self._who()} dies with its state at {where}")
        self._die(TaskKilled)

    def _host(self, where: str) -> None:
        home = self.task[0] if self.task is not None else self.dice.choice(sorted(self.slots))
        self._freeze()
        self.lose([place for place in self.memory if place[0] == home], f"{home} dies with its state at {where}")
        if self.task is not None:
            self._die(TaskKilled)

    def _everything(self, where: str) -> None:
        self._freeze()
        self.lose(list(self.memory), f"all state is lost while {self._who()} is at {where}")
        if self.task is not None:
            self._die(TaskKilled)

    def _vanish(self, where: str) -> None:
        held = [self.task] if self.task is not None else sorted(self.memory)[:1]
        self.lose(held, f"a folder is removed while {self._who()} goes on at {where}")

    def _away(self, where: str) -> None:
        host = self.task[0] if self.task is not None else self.dice.choice(sorted(self.slots))
        if len(self.slots) > 1 and host in self.slots:
            del self.slots[host]
            self.away[host] = self.dice.randrange(2)
            self.say(f"{host} goes away at {where}")
        if self.task is not None:
            self._freeze()
            self._die(TaskKilled)

    def _driver(self, where: str) -> None:
        self._freeze()
        self.say(f"the driver dies while {self._who()} is at {where}")
        self._die(DriverKilled)

    def _system(self, where: str) -> None:
        self._freeze()
        self.lose(list(self.memory), f"driver and all state are lost while {self._who()} is at {where}")
        self._die(DriverKilled)

    def _receiver(self, where: str) -> None:
        if not self.kill_receiver(where):
            self.failures += 1

    def _producer(self, where: str) -> None:
        if not self.kill_producer(where):
            self.failures += 1

    def happens(self, what: str, chance: float) -> bool:
        """Whether something comes to pass that is no matter of points in the code, nor counted among failures."""
        moment = self.moments.next(what)
        if self.quiet or self.dice.at(moment).random() >= chance:
            return False
        if self.only is not None and name_of(moment) not in self.only:
            return False
        self.events.append((name_of(moment), what))
        return True

    def shift_clock(self) -> None:
        """Where clocks are unreliable, they jump again and again."""
        if "clock" in self.schedule.troubles and self.happens("clock", 0.4):
            self._clock("a backup")

    def _clock(self, where: str) -> None:
        jump = self.dice.choice((-3600.0, -3.0, -1.0, -0.1, 0.5, 3600.0))
        self.skews[self.host] = self.skews.get(self.host, 0.0) + jump
        self.say(f"the clock of {self.host} jumps by {jump} at {where}")

    def _freeze(self) -> None:
        super()._freeze()
        for write in self.under_way:
            write.orphan()
        self.under_way = []

    # --- tasks that stand still and go on -------------------------------------------------------------------

    def attempt(self, host: str, task: Callable[[], Any]) -> tuple[bool, Any]:
        before = self.host, self.task, self.recovering, self.under_way, self.fiber, self._patience
        self.host, self.recovering, self.under_way, self.fiber = host, False, [], None
        try:
            if not self._will_stall():
                return self._unless_dead(task())
            self._patience = 1 + int(self.chance("stalls after") * 40)
            self.fiber = Fiber(task, TaskKilled)
            return self._resume(self.fiber)
        except TaskKilled:
            self.dying = False
            return False, None
        finally:
            self.host, self.task, self.recovering, self.under_way, self.fiber, self._patience = before

    def _will_stall(self) -> bool:
        if "stall" not in self.schedule.troubles or self.failures <= 0 or self.fiber is not None:
            return False
        if not self.happens("a task stalls", 0.15):
            return False
        self.failures -= 1
        return True

    def _resume(self, fiber: Fiber) -> tuple[bool, Any]:
        if not fiber.resume():
            self.say(f"a task of {self._who()} is taken for dead")
            self.stalled.append((fiber, self.host))
            if self.task is not None and self.happens("its state goes", 0.5):
                self.lose([self.task], "and its folder is removed")
            return False, None
        if fiber.error is not None:
            raise fiber.error
        return self._unless_dead(fiber.result)

    def _stand_still(self) -> None:
        """Where a task that is to be taken for dead stops."""
        if self.fiber is None or self.dying or self._living or self.receiver_at_work:
            return
        self._patience -= 1
        if self._patience:
            return
        context = self.task, self.recovering, self.under_way
        self.fiber.park()
        self.task, self.recovering, self.under_way = context

    def wake_zombies(self) -> None:
        """Tasks that were taken for dead go on, for a while or to their end."""
        if not self.dying and self.stalled and self.chance("a zombie wakes") < 0.3:
            self._wake(to_its_end=self.chance("to its end") < 0.5)

    def _wake(self, *, to_its_end: bool) -> None:
        fiber, host = self.stalled.pop(int(self.chance("which zombie") * len(self.stalled)))
        before = self.host, self.task, self.recovering, self.under_way, self.fiber, self._patience
        self.host, self.fiber = host, fiber
        self._patience = sys.maxsize if to_its_end else 1 + int(self.chance("how far") * 20)
        self.woken += 1
        self.say(f"a task that was taken for dead goes on, on {host}")
        try:
            with self.in_peace():
                ended = fiber.resume()
            if not ended:
                self.stalled.append((fiber, host))
            else:
                self.say(f"  it ends with {fiber.error or fiber.result}")
        finally:
            self.host, self.task, self.recovering, self.under_way, self.fiber, self._patience = before

    def forgets(self, host: str, task: Callable[[], Any], requests: Sequence[TaskRequest] = ()) -> bool:
        return False

    def end(self) -> None:
        """Nothing goes on any more."""
        self.dying = True
        for fiber, _ in self.stalled:
            fiber.abandon()
        self.stalled = []
        self.dying = False
