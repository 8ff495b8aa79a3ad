"""Claims of processes that come at any moment of each other's requests: numbers differ, and the newest one holds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import CheckpointError
from afspark.push.receiver.sessions import StartNumber
from afspark.store.base import Names, Store
from afspark.store.claims import ClaimId, Claims
from afspark.store.naming import EpochId
from tests.property.store.faulty_store import MemoryStore

KINDS = st.sampled_from([ClaimId, EpochId, StartNumber])
TOKENS = st.text("0123456789abcdef", min_size=8, max_size=16)


class Interrupted(MemoryStore):
    """Before and after every request another process may claim the same, and be interrupted in turn."""

    def __init__(self, interruptions: list[int], kind: type[ClaimId], *, drop_older: bool) -> None:
        super().__init__()
        self.interruptions, self.kind, self.drop_older = interruptions, kind, drop_older
        #: when a claim was asked for, when it was given, and the claim
        self.taken: list[tuple[int, int, ClaimId]] = []
        self.clock = 0

    def claims(self) -> Claims[ClaimId]:
        return Claims(self, "folder", self.kind, who="processes")

    def claim(self) -> None:
        self.clock += 1
        asked = self.clock
        mine = self.claims().take(drop_older=self.drop_older)
        self.clock += 1
        self.taken.append((asked, self.clock, mine))

    def _interrupt(self) -> None:
        if self.interruptions and self.interruptions.pop():
            self.claim()

    def put(self, name: str, data: bytes) -> None:
        self._interrupt()
        super().put(name, data)
        self._interrupt()

    def list(self, prefix: str) -> Names:
        self._interrupt()
        found = super().list(prefix)
        self._interrupt()
        return found


@given(st.lists(st.integers(0, 1), max_size=40), KINDS, st.booleans(), st.integers(1, 4))
def test_numbers_differ_and_who_comes_later_has_the_newer_claim(
    interruptions: list[int], kind: type[ClaimId], drop_older: bool, processes: int
) -> None:
    store = Interrupted(interruptions, kind, drop_older=drop_older)
    for _ in range(processes):
        store.claim()
    store.interruptions = []
    numbers = [claim.number for _, _, claim in store.taken]
    assert len(set(numbers)) == len(numbers)
    for _, given_at, earlier in store.taken:
        assert all(later > earlier for asked, _, later in store.taken if asked > given_at)
    newest = max(claim for _, _, claim in store.taken)
    for _, _, claim in store.taken:
        found = store.claims().newer(claim)
        assert (found is None) == (claim == newest), "all but the newest are told, and the newest is not"
    assert store.claims().newest() == newest
    if drop_older:
        assert store.claims().present() >= {newest} and len(store.claims().present()) <= len(numbers)


class Guarded(Interrupted):
    """Processes whose claims have guards. ``turns``: whether the store puts objects only where there are none, which it
    may do for some processes alone, or claim to do.
    """

    def __init__(self, interruptions: list[int], *, turns: str) -> None:
        super().__init__(interruptions, EpochId, drop_older=False)
        self.turns = turns
        #: those that have heard of nobody newer, with what they look by
        self.driving: list[tuple[Claims[ClaimId], ClaimId]] = []

    def claims(self) -> Claims[ClaimId]:
        return Claims(self, "folder", self.kind, who="processes", entry="driver", guard="guard")

    def claim(self) -> None:
        claims = self.claims()
        mine = claims.take()
        self.taken.append((0, 0, mine))
        self._interrupt()
        if claims.newer(mine) is None:
            assert not self.unaware(mine), "whoever drove before knows by now"
            self.driving.append((claims, mine))

    def unaware(self, mine: ClaimId) -> list[ClaimId]:
        """Those before ``mine`` whose guards are still there."""
        older = [claim for _, claim in self.driving if claim < mine]
        return [claim for claim in older if MemoryStore.has(self, f"folder/{claim}/guard")]

    def put_new(self, name: str, data: bytes) -> bool | None:
        if self.turns == "none" or (self.turns == "some" and data[-1] % 2):
            return None
        self._interrupt()
        made = name not in self.objects or self.turns == "ignored"
        if made:
            MemoryStore.put(self, name, data)
        self._interrupt()
        return made

    def has(self, name: str) -> bool:
        return MemoryStore.has(self, name)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._interrupt()
            super().delete([name])


@given(st.lists(st.integers(0, 1), max_size=30), st.sampled_from(["none", "some", "all", "ignored"]), st.integers(1, 4))
def test_as_long_as_its_guard_is_there_nobody_has_claimed_the_same(
    interruptions: list[int], turns: str, processes: int
) -> None:
    store = Guarded(interruptions, turns=turns)
    for _ in range(processes):
        store.claim()
    store.interruptions = []
    newest = max(claim for _, _, claim in store.taken)
    for claims, claim in store.driving:
        assert claims.is_guarded(claim) == (claim == newest)
        assert (claims.newer(claim) is None) == (claim == newest)
    numbers = [claim.number for _, _, claim in store.taken]
    assert len(set(numbers)) == len(numbers)


@given(KINDS, st.integers(0, 2**40), TOKENS)
def test_a_claim_is_known_by_its_text(kind: type[ClaimId], number: int, token: str) -> None:
    claim = kind(number, token)
    assert kind.parse(str(claim)) == claim


@given(st.lists(st.tuples(st.integers(1, 10**20), TOKENS), min_size=1, max_size=5), KINDS)
def test_claims_of_any_width_are_ordered_by_number(others: list[tuple[int, str]], kind: type[ClaimId]) -> None:
    """Checkpoints of earlier versions have numbers of 12 and 20 digits beside those of 8."""
    store = MemoryStore()
    for number, token in others:
        store.put(f"folder/{kind(number, token)}", b"")
    store.put("folder/no claim", b"")
    store.put("folder/no-claim/either", b"")
    claims = Claims(store, "folder", kind, who="processes")
    mine = claims.take()
    assert mine.number == max(number for number, _ in others) + 1
    assert claims.newest() == mine


@pytest.mark.parametrize("text", ["", "1-x", "00000001", "00000001-", "0000000g-01234567", "-0000001-01234567"])
def test_other_texts_are_no_claims(text: str) -> None:
    assert ClaimId.parse(text) is None


def test_a_number_in_another_base_is_no_claim() -> None:
    assert ClaimId.parse("0000000a-01234567") is None
    assert StartNumber.parse("0000000a-01234567") == StartNumber(10, "01234567")


def test_with_an_entry_the_claim_is_the_folder_around_it() -> None:
    store = MemoryStore()
    claims = Claims(store, "folder", ClaimId, who="processes", entry="driver")
    mine = claims.take(b"data")
    assert store.get(f"folder/{mine}/driver") == b"data"
    store.put(f"folder/{ClaimId(7, '0' * 16)}/records/1", b"")
    assert claims.newer(mine) == ClaimId(7, "0" * 16)


def test_who_never_comes_alone_gives_up() -> None:
    class Crowded(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            super().put(name, data)
            super().put(f"folder/{ClaimId.after(0)}", data)

    store: Store = Crowded()
    with pytest.raises(CheckpointError) as caught:
        Claims(store, "folder", ClaimId, who="processes").take()
    assert caught.value.path == store.path
