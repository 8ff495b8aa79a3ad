"""Every kind of state against the conformance suite."""

from __future__ import annotations

import pytest

from afspark.model.states import conformance, state_kinds

SUBJECTS = list(conformance.builtin_subjects())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("check", conformance.CHECKS)
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_conformance(subject: conformance.Subject, check: str, seed: int) -> None:
    conformance.check(check, subject, seed)


def test_every_builtin_kind_is_a_subject() -> None:
    assert {subject.spec.kind for subject in SUBJECTS} >= {"hashtable", "matrix"}
    assert {subject.spec.kind for subject in SUBJECTS} <= set(state_kinds())
