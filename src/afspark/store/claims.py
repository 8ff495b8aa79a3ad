"""Claims: of all processes that have claimed something in a store, the one with the newest claim has it.

A claim is an object whose name carries a number, one above all that are present, and a random token. Nothing is
compared and set: a process puts its claim and looks again, and where another claim has appeared meanwhile it claims
anew. So claims differ in their numbers as long as listings show what was put before; where listings are late and two
have the same number, the larger token is the newer one. Whoever has claimed something asks `Claims.newer` before it
acts: of two processes, the older one sees the newer one's claim, or the newer one sees what the older one has done.

That is a listing. Where it is asked often, a claim has a *guard*: an object beside it, which whoever claims the same
later deletes before it does anything else. As long as the guard is there nobody has, and to look for one object by its
name is the least that a store can be asked.

Where the store can put an object only if there is none (`Store.put_new`), guarded claims take *turns* as well: objects
named by the number alone, which say whose it is. Then no two claims have the same number, and whether there is a later
one is seen by names, whatever listings show. Turns stay: a number that was free again could be taken twice. A server
may take such puts for any others, so that claims are listed again all the same.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar

from afspark.errors import CheckpointError, ObjectMissing
from afspark.store.base import Store

_TRIES = 20
#: How many turns are looked back for claims that a late listing may not show.
_LOOKED_BACK = 3
TURNS = "-turns"
"""Ends the name of the folder beside that of claims which take turns."""
_TEXT = re.compile(r"([0-9a-f]{8,})-([0-9a-f]{8,})")


@dataclass(frozen=True, order=True)
class ClaimId:
    """One claim, ordered by number and then by the random token; its text is part of an object's name.

    >>> ClaimId.parse("00000012-0123456789abcdef")
    ClaimId(number=12, token='0123456789abcdef')
    """

    #: how the number is written
    BASE: ClassVar[int] = 10

    number: int
    token: str

    def __str__(self) -> str:
        return f"{self.number:08{'x' if self.BASE == 16 else 'd'}}-{self.token}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The claim of that text; None for a text that no claim has."""
        match = _TEXT.fullmatch(text)
        try:
            return cls(int(match[1], cls.BASE), match[2]) if match else None
        except ValueError:
            return None

    @classmethod
    def after(cls, number: int) -> Self:
        """A claim that follows ``number``; two processes that ask at the same time get different ones."""
        return cls(number + 1, secrets.token_hex(8))


C = TypeVar("C", bound=ClaimId)


class Claims(Generic[C]):
    """The claims in one folder of a store, made by ``who`` (for messages).

    A claim is the object ``<folder>/<claim>``, or with an ``entry`` the object of that name below it, where it has a
    guard as well if ``guard`` names one.
    """

    def __init__(self, store: Store, folder: str, kind: type[C], *, who: str, entry: str = "", guard: str = "") -> None:
        self._store, self._folder, self._kind = store, folder, kind
        self._who, self._entry, self._guard = who, f"/{entry}" if entry else "", guard
        self._takes_turns = False

    def present(self) -> frozenset[C]:
        """All claims that nobody has deleted; one listing."""
        return self._among(self._store.list(self._folder))

    def newest(self) -> C | None:
        """The claim that holds; one listing."""
        return max(self.present(), default=None)

    def newer(self, mine: C) -> C | None:
        """The newest claim, if it is newer than ``mine``; one listing, and a look where claims take turns."""
        known = [*self.present(), *self._turns(range(mine.number + 1, mine.number + 2))]
        newest = max(known, default=None)
        return newest if newest is not None and newest > mine else None

    def is_guarded(self, mine: C) -> bool:
        """Whether nobody has claimed the same since `newer` said so last, after ``mine`` was taken; one look.

        If not, the guard may be gone for another reason: `newer` knows.
        """
        return bool(self._guard) and self._store.has(self._guard_of(mine))

    def take(self, data: bytes = b"", *, drop_older: bool = False) -> C:
        """A claim newer than all before it, with ``data`` as its object; durable when this returns.

        ``drop_older`` deletes the objects of those; else one that this process gave up for a newer one remains as well.
        `CheckpointError` if others keep claiming the same.
        """
        for _ in range(_TRIES):
            names = self._store.list(self._folder)
            before = self._among(names)
            mine = self._turn(self._kind.after(max((claim.number for claim in before), default=0)))
            self._store.put(f"{self._folder}/{mine}{self._entry}", data)
            others = self.present() - {mine}
            if self._is_alone(mine, others - before):
                if self._guard:
                    self._store.put(self._guard_of(mine), b"")
                    late = self._turns(range(max(1, mine.number - _LOOKED_BACK), mine.number))
                    older = {claim for claim in before.union(others, late) if claim < mine}
                    self._store.delete(sorted(map(self._guard_of, older)))
                if drop_older:
                    self._store.delete(names)
                return mine
        raise CheckpointError(
            f"Other {self._who} keep starting on {self._store.path}.",
            remedy="Let only one query use this checkpoint at a time.",
            path=self._store.path,
        )

    def _is_alone(self, mine: C, others: frozenset[C]) -> bool:
        """Whether no claim of ``others``, which have come since the listing that ``mine`` follows, is in its way.

        Where claims take turns, of two at once the higher one has it. Two have the same number if the server knows no
        such puts and says nothing of it, or if a process does not take turns, because it has other credentials.
        """
        return all(other.number != mine.number for other in others) if self._takes_turns else not others

    def _turn(self, mine: C) -> C:
        """The claim with the first number from its own on that nobody has, where claims take turns."""
        while self._guard:
            made = self._store.put_new(self._turn_of(mine.number), str(mine).encode())
            if made is None:
                break
            self._takes_turns = True
            if made:
                break
            mine = self._kind.after(mine.number)
        return mine

    def _turns(self, numbers: range) -> list[C]:
        """The claims whose turns these are, where claims take turns."""
        found = []
        for number in numbers if self._takes_turns else ():
            try:
                claim = self._kind.parse(self._store.get(self._turn_of(number)).decode(errors="replace"))
            except ObjectMissing:
                continue
            found += [claim] if claim is not None else []
        return found

    def _turn_of(self, number: int) -> str:
        return f"{self._folder}{TURNS}/{number:08d}"

    def _guard_of(self, claim: C) -> str:
        return f"{self._folder}/{claim}/{self._guard}"

    def _among(self, names: list[str]) -> frozenset[C]:
        texts = {name.removeprefix(f"{self._folder}/").partition("/")[0] for name in names}
        return frozenset(claim for text in texts if (claim := self._kind.parse(text)))
