"""Streaming algorithms, written only against the programming model."""

from afspark.algorithms.features import Features
from afspark.algorithms.grep import Grep
from afspark.algorithms.heavy_hitters import HeavyHitters
from afspark.algorithms.logistic_regression import GlobalRegression, LocalRegression, logistic_regression
from afspark.algorithms.online_join import OnlineJoin
from afspark.algorithms.wordcount import WordCount

__all__ = [
    "Features",
    "GlobalRegression",
    "Grep",
    "HeavyHitters",
    "LocalRegression",
    "OnlineJoin",
    "WordCount",
    "logistic_regression",
]
