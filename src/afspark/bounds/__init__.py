"""Thresholds and error bounds: pure mathematics."""

from afspark.bounds.general import state_bound
from afspark.bounds.join_bounds import lost_samples
from afspark.bounds.learning import Risk, average_regret_bound
from afspark.bounds.sketch_bounds import HeavyKeys
from afspark.bounds.thresholds import Place, Thresholds, divides_among_copies, halved, realised, threshold
from afspark.bounds.training_regret import RegretVerdict, TrainingRisk
from afspark.bounds.weights import weights
from afspark.bounds.windows import Failure, Windowing, decayed, failures_in_force

__all__ = [
    "Failure",
    "HeavyKeys",
    "Place",
    "RegretVerdict",
    "Risk",
    "Thresholds",
    "TrainingRisk",
    "Windowing",
    "average_regret_bound",
    "decayed",
    "divides_among_copies",
    "failures_in_force",
    "halved",
    "lost_samples",
    "realised",
    "state_bound",
    "threshold",
    "weights",
]
