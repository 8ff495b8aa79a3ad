"""Fault tolerance for streaming that costs what it is worth: approximate state backup on Spark."""

from afspark._version import __version__
from afspark.algorithms import HeavyHitters, WordCount
from afspark.errors import AfsparkError
from afspark.model.operator import Combiner, Operator, Share, Transform, WorkerContext
from afspark.model.states import HashTable, Matrix, State, StateSpec
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance
from afspark.runtime.query import Query
from afspark.runtime.session import session
from afspark.runtime.stream import Stream, StreamReader, StreamWriter, read_stream

__all__ = [
    "AfsparkError",
    "Approximate",
    "Combiner",
    "HashTable",
    "HeavyHitters",
    "Matrix",
    "MiniBatch",
    "Nothing",
    "Operator",
    "Query",
    "Share",
    "State",
    "StateSpec",
    "Stream",
    "StreamReader",
    "StreamWriter",
    "Tolerance",
    "Transform",
    "WordCount",
    "WorkerContext",
    "__version__",
    "read_stream",
    "session",
]
