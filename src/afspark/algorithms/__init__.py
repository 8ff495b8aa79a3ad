"""Streaming algorithms, written only against the programming model."""

from afspark.algorithms.heavy_hitters import HeavyHitters
from afspark.algorithms.wordcount import WordCount

__all__ = ["HeavyHitters", "WordCount"]
