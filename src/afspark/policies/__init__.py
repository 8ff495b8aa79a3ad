"""Tolerance policies: pure decisions about what to back up."""

from afspark.policies.tolerance import Approximate, MiniBatch, Nothing, Tolerance, counts_as_failure

__all__ = ["Approximate", "MiniBatch", "Nothing", "Tolerance", "counts_as_failure"]
