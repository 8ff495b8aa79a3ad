"""Thresholds and error bounds: pure mathematics."""

from afspark.bounds.general import state_bound
from afspark.bounds.join_bounds import join_error
from afspark.bounds.learning import Risk, average_regret_bound, regret_bound
from afspark.bounds.sketch_bounds import HeavyKeys
from afspark.bounds.thresholds import Place, divides_among_copies, realised, threshold
from afspark.bounds.weights import weights
from afspark.bounds.windows import Failure, Windowing, decayed, failures_in_force

__all__ = [
    "Failure",
    "HeavyKeys",
    "Place",
    "Risk",
    "Windowing",
    "average_regret_bound",
    "decayed",
    "divides_among_copies",
    "failures_in_force",
    "join_error",
    "realised",
    "regret_bound",
    "state_bound",
    "threshold",
    "weights",
]
