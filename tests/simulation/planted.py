"""Where to look for planted mistakes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

#: Seeds that noticed a mistake when schedules were drawn as they are now. If they no longer do, the search goes on.
_NOTICED = {
    "backups_at_rest_forgotten": 260,
    "backups_at_rest_forgotten_by_drivers": 1912,
    "damage_leaves_the_bound_as_it_was": 129,
    "damage_not_told": 129,
    "digests_not_compared": 267,
    "items_not_halved": 104,
    "lowered_threshold_told_of_older_backups": 287,
    "record_of_no_barrier": 353,
    "records_offered_before_a_loss_written_after_it": 175,
    "repeated_recovery_not_told": 465,
    "swept_too_early": 56,
    "threshold_not_halved": 43,
    "zombies_backup_accepted": 155,
}


def likely_first(plant: Callable[..., None], seeds: Iterable[int]) -> Iterator[int]:
    """The seeds, after the one that has noticed this mistake before."""
    if plant.__name__ in _NOTICED:
        yield _NOTICED[plant.__name__]
    yield from seeds
