"""Fault tolerance for streaming that costs what it is worth: approximate state backup on Spark."""

from afspark._version import __version__
from afspark.algorithms import (
    Features,
    GlobalRegression,
    Grep,
    HeavyHitters,
    LocalRegression,
    OnlineJoin,
    WordCount,
    logistic_regression,
)
from afspark.errors import AfsparkError
from afspark.model.operator import Combiner, Operator, Outbox, Share, Transform, WorkerContext
from afspark.model.states import HashTable, Matrix, Numeric, Own, OwnState, Set, State, StateSpec, Vector
from afspark.model.windows import Decaying, Hopping, Punctuation, Sliding, Window
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance, UpstreamBackup
from afspark.push.producer import Producer
from afspark.runtime.inspection import Inspection, inspect
from afspark.runtime.query import Query
from afspark.runtime.session import register, session
from afspark.runtime.stream import StatefulStream, Stream, StreamReader, read_stream
from afspark.runtime.writer import StreamWriter

__all__ = [
    "AfsparkError",
    "Approximate",
    "Combiner",
    "Decaying",
    "Features",
    "GlobalRegression",
    "Grep",
    "HashTable",
    "HeavyHitters",
    "Hopping",
    "Inspection",
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
    "logistic_regression",
    "read_stream",
    "register",
    "session",
]
