"""Tolerance policies: pure decisions about what to back up."""

from afspark.policies.adaptive import Adaptive
from afspark.policies.cost_weights import Costs
from afspark.policies.fitness import refuse_if_unfit
from afspark.policies.inforce import losses_add_up, thresholds_in_force
from afspark.policies.plans import (
    BackupNeed,
    BackupPlan,
    CompleteState,
    KeepResident,
    NoBackup,
    RecoveryPlan,
    RestoreChain,
    StartEmpty,
    ThresholdBackup,
)
from afspark.policies.pushed import ItemLimits, item_limits
from afspark.policies.replication import (
    ActiveReplication,
    ActiveStandby,
    ColdStandby,
    Deployed,
    HotStandby,
    PassiveReplication,
    Replicated,
)
from afspark.policies.snapshot import BarrierSnapshot
from afspark.policies.tolerance import Approximate, MiniBatch, Nothing, Tolerance, UpstreamBackup, counts_as_failure

__all__ = [
    "ActiveReplication",
    "ActiveStandby",
    "Adaptive",
    "Approximate",
    "BackupNeed",
    "BackupPlan",
    "BarrierSnapshot",
    "ColdStandby",
    "CompleteState",
    "Costs",
    "Deployed",
    "HotStandby",
    "ItemLimits",
    "KeepResident",
    "MiniBatch",
    "NoBackup",
    "Nothing",
    "PassiveReplication",
    "RecoveryPlan",
    "Replicated",
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
