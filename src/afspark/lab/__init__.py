"""The laboratory: which operators of a pipeline tolerate loss, measured by injecting faults."""

from afspark.lab.findings import Findings, findings_of
from afspark.lab.observations import Outage, Rate, TargetObservations
from afspark.lab.sections import AffectedRange, AffectedRows, FaultSpan
from afspark.lab.study import Study
from afspark.lab.study_result import StudyResult

__all__ = [
    "AffectedRange",
    "AffectedRows",
    "FaultSpan",
    "Findings",
    "Outage",
    "Rate",
    "Study",
    "StudyResult",
    "TargetObservations",
    "findings_of",
]
