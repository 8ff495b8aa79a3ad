"""Every kind of state against the conformance suite."""

from __future__ import annotations

import pytest

from afspark.model.states import Own, OwnState, conformance, spec_class, state_kinds
from tests.unit.states.own_states import Forgetful, Tally, update_tally
from tests.unit.states.subjects import builtin_subjects

SUBJECTS = list(builtin_subjects())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("check", conformance.CHECKS)
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_conformance(subject: conformance.Subject, check: str, seed: int) -> None:
    conformance.check(check, subject, seed)


def test_every_primitive_is_a_subject_with_every_divergence() -> None:
    covered = {(subject.spec.kind, subject.spec.distance) for subject in SUBJECTS}
    primitives = [spec_class(kind) for kind in state_kinds() if kind != "own"]
    assert {spec.kind for spec in primitives} >= {"hashtable", "matrix", "numeric", "set", "vector"}
    assert covered >= {(spec.kind, divergence) for spec in primitives for divergence in spec.divergences}


@pytest.mark.parametrize("spec", [Own(Tally, 100), Own(Tally, 3, divergence="max", exact=True)], ids=str)
def test_a_state_of_ones_own(spec: Own) -> None:
    conformance.check_all(spec, update_tally, seeds=range(4))


def test_a_state_that_keeps_nothing() -> None:
    conformance.check_all(Own(OwnState), lambda state, random: state.own)


def test_a_wrong_state_is_found() -> None:
    with pytest.raises(AssertionError):
        conformance.check_all(Own(Forgetful, 100), update_tally)
