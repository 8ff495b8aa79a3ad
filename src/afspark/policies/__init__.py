"""Tolerance policies: pure decisions about what to back up."""

from afspark.policies.fitness import refuse_if_unfit
from afspark.policies.inforce import losses_add_up, thresholds_in_force
from afspark.policies.plans import (
    BackupNeed,
    BackupPlan,
    KeepResident,
    NoBackup,
    RecoveryPlan,
    RestoreChain,
    StartEmpty,
    ThresholdBackup,
)
from afspark.policies.pushed import ItemLimits, item_limits
from afspark.policies.snapshot import BarrierSnapshot
from afspark.policies.tolerance import Approximate, MiniBatch, Nothing, Tolerance, UpstreamBackup, counts_as_failure

__all__ = [
    "Approximate",
    "BackupNeed",
    "BackupPlan",
    "BarrierSnapshot",
    "ItemLimits",
    "KeepResident",
    "MiniBatch",
    "NoBackup",
    "Nothing",
    "RecoveryPlan",
    "RestoreChain",
    "StartEmpty",
    "ThresholdBackup",
    "Tolerance",
    "UpstreamBackup",
    "counts_as_failure",
    "item_limits",
    "losses_add_up",
    "refuse_if_unfit",
    "thresholds_in_force",
]
