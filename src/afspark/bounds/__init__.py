"""Thresholds and error bounds: pure mathematics."""

from afspark.bounds.thresholds import divides_among_copies, realised, threshold

__all__ = ["divides_among_copies", "realised", "threshold"]
