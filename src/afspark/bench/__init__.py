"""Repeatable measurements: interleaved repetitions in one run, medians, ratios."""
