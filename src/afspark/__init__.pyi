"""Fault tolerance for streaming that costs what it is worth: approximate state backup on Spark."""

from afspark._version import __version__
from afspark.algorithms import (
    Features,
    GlobalRegression,
    Grep,
    HeavyHitters,
    KeywordFilter,
    Lexicon,
    LoadPrediction,
    LoadReadings,
    LocalRegression,
    OnlineJoin,
    Sentiment,
    WordCount,
    keyword_sentiment,
    load_prediction,
    logistic_regression,
)
from afspark.api.inspection import Inspection, inspect
from afspark.api.query import Query
from afspark.api.stream import StatefulStream, Stream, StreamReader, read_stream
from afspark.api.writer import StreamWriter
from afspark.cluster.spark.session import register, session
from afspark.errors import AfsparkError
from afspark.model.operator import Combiner, Operator, Outbox, Share, Transform, WorkerContext
from afspark.model.states import HashTable, Matrix, Numeric, Own, OwnState, Set, State, StateSpec, Vector
from afspark.model.windows import Decaying, Hopping, Punctuation, Sliding, Window
from afspark.policies import (
    ActiveStandby,
    Adaptive,
    Approximate,
    BarrierSnapshot,
    Costs,
    MiniBatch,
    Nothing,
    Tolerance,
    UpstreamBackup,
)
from afspark.push.producer.producer import Producer

__all__ = [
    "ActiveStandby",
    "Adaptive",
    "AfsparkError",
    "Approximate",
    "BarrierSnapshot",
    "Combiner",
    "Costs",
    "Decaying",
    "Features",
    "GlobalRegression",
    "Grep",
    "HashTable",
    "HeavyHitters",
    "Hopping",
    "Inspection",
    "KeywordFilter",
    "Lexicon",
    "LoadPrediction",
    "LoadReadings",
    "LocalRegression",
    "Matrix",
    "MiniBatch",
    "Nothing",
    "Numeric",
    "OnlineJoin",
    "Operator",
    "Outbox",
    "Own",
    "OwnState",
    "Producer",
    "Punctuation",
    "Query",
    "Sentiment",
    "Set",
    "Share",
    "Sliding",
    "State",
    "StateSpec",
    "StatefulStream",
    "Stream",
    "StreamReader",
    "StreamWriter",
    "Tolerance",
    "Transform",
    "UpstreamBackup",
    "Vector",
    "Window",
    "WordCount",
    "WorkerContext",
    "__version__",
    "inspect",
    "keyword_sentiment",
    "load_prediction",
    "logistic_regression",
    "read_stream",
    "register",
    "session",
]
