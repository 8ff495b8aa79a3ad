"""Fault tolerance for streaming that costs what it is worth: approximate state backup on Spark.

Names are imported when they are first used (``__init__.pyi`` lists them for type checkers): Spark starts a process
of its own for every source of a query, and that one needs neither compiled kernels nor anything else in here.
"""

from importlib import import_module
from typing import Any

from afspark._version import __version__

_NAMES = {
    "algorithms": (
        "Aggregator",
        "BargainIndex",
        "Features",
        "GlobalRegression",
        "Grep",
        "HeavyHitters",
        "KeywordFilter",
        "Lexicon",
        "LinearLearner",
        "LoadPrediction",
        "LoadReadings",
        "LocalRegression",
        "LogisticLearner",
        "OnlineJoin",
        "QuoteFilter",
        "Sentiment",
        "TradeFilter",
        "TradeQuote",
        "VWAP",
        "WordCount",
        "bargain_discovery",
        "keyword_sentiment",
        "load_prediction",
        "logistic_regression",
        "train",
    ),
    "errors": ("AfsparkError",),
    "model.consistency": ("ASP", "BSP", "SSP"),
    "model.learner": ("Learned", "Learner"),
    "model.training": ("Cells", "ConvexLoss", "StepFacts"),
    "model.operator": ("Combiner", "Operator", "Outbox", "Share", "Transform", "WorkerContext"),
    "model.states": ("HashTable", "Matrix", "Numeric", "Own", "OwnState", "Set", "State", "StateSpec", "Vector"),
    "model.windows": ("Decaying", "Hopping", "Punctuation", "Sliding", "Window"),
    "policies": (
        "ActiveReplication",
        "ActiveStandby",
        "Adaptive",
        "Approximate",
        "BarrierSnapshot",
        "ColdStandby",
        "Costs",
        "Deployed",
        "HotStandby",
        "MiniBatch",
        "Nothing",
        "PassiveReplication",
        "Tolerance",
        "UpstreamBackup",
    ),
    "push.producer.producer": ("Producer",),
    "cluster.spark.session": ("register", "session"),
    "api.inspection": ("Inspection", "inspect"),
    "api.query": ("Query",),
    "api.stream": ("StatefulStream", "Stream", "StreamReader", "read_stream"),
    "api.writer": ("StreamWriter",),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

#: Names in packages of their own, such as ``lab.Study``.
_PACKAGES = ("lab",)

__all__ = ["__version__", *sorted((*_HOMES, *_PACKAGES))]  # noqa: PLE0604 - all of them are texts


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
