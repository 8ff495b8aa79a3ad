"""Whether both replicas of a worker have made the same of a batch. Pure."""

from __future__ import annotations

from afspark.model.effect_digest import EffectDigest
from afspark.protocol.reports import TaskReport
from afspark.task.effects import WHOLE

_NOTHING = EffectDigest()


def other_effects(first: TaskReport, second: TaskReport) -> list[str]:
    """What two replicas have done differently in a batch, by the digests of their reports; nothing if one of them
    cannot tell.
    """
    if WHOLE not in first.effects or WHOLE not in second.effects:
        # Another policy was in force when it applied the batch.
        return []
    labels = {*first.effects, *second.effects}
    return sorted(
        label for label in labels if not first.effects.get(label, _NOTHING).agrees(second.effects.get(label, _NOTHING))
    )
