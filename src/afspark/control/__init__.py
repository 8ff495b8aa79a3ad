"""Recovery times, costs and the choice between schemes of fault tolerance: pure decisions."""

from afspark.control.candidates import Candidate
from afspark.control.controller import decide
from afspark.control.costs import Resources, resources
from afspark.control.decisions import Decision, InForce
from afspark.control.estimates import estimate
from afspark.control.history import UnitHistory
from afspark.control.looks import Controller
from afspark.control.measured_recovery import MeasuredRecovery
from afspark.control.quantities import FailureKind, Measurement, Quantity
from afspark.control.recovery_times import RecoveryTimes
from afspark.control.schemes import (
    STEPS,
    SWITCHES,
    Protection,
    RecoveryStep,
    Scheme,
    Switches,
    Unreplicated,
    protection_under,
)
from afspark.control.situation import Situation, Unit
from afspark.control.transitions import TRANSITIONS, SchemeAction, actions

__all__ = [
    "STEPS",
    "SWITCHES",
    "TRANSITIONS",
    "Candidate",
    "Controller",
    "Decision",
    "FailureKind",
    "InForce",
    "MeasuredRecovery",
    "Measurement",
    "Protection",
    "Quantity",
    "RecoveryStep",
    "RecoveryTimes",
    "Resources",
    "Scheme",
    "SchemeAction",
    "Situation",
    "Switches",
    "Unit",
    "UnitHistory",
    "Unreplicated",
    "actions",
    "decide",
    "estimate",
    "protection_under",
    "resources",
]
