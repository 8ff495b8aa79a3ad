"""Streaming algorithms, written only against the programming model."""

from afspark.algorithms.grep import Grep
from afspark.algorithms.heavy_hitters import HeavyHitters
from afspark.algorithms.online_join import OnlineJoin
from afspark.algorithms.wordcount import WordCount

__all__ = ["Grep", "HeavyHitters", "OnlineJoin", "WordCount"]
