"""How errors end a user's script: their own traceback first, then one line, and no pages of Java.

With ``AFSPARK_TRACE=1`` in the environment everything is shown as Python and Spark show it.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from types import TracebackType

from pyspark import SparkContext

from afspark.cluster.spark.foreign_errors import is_sparks, one_line, own_error
from afspark.errors import UsageError
from afspark.model.user_trace import is_ours, is_users, user_trace

SHOW_ALL = "AFSPARK_TRACE"

# What Spark logs of a query that has failed, which whoever awaits the query hears as an error.
_TALKATIVE = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


def show_errors_briefly() -> None:
    """Errors that end this process are shown by `brief`, unless somebody else shows them: a notebook, a debugger."""
    if sys.excepthook is sys.__excepthook__ and not os.environ.get(SHOW_ALL):
        sys.excepthook = _show


def hush_traces(context: SparkContext) -> None:
    """Spark and py4j no longer log the trace of every failed query, which is raised as an error anyway."""
    if os.environ.get(SHOW_ALL) or context._jvm is None:
        return
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    log4j = context._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_TALKATIVE, log4j.Level.OFF)


def brief(error: BaseException) -> str | None:
    """What a user is shown of an error; None if it does not come from here, and Python shows it as ever."""
    if isinstance(error, KeyboardInterrupt):
        return "afspark: stopped.\n"
    own = own_error(error)
    if own is not None:
        line = one_line(own) + (_place(error.__traceback__) if isinstance(own, UsageError) else "")
        return f"{getattr(own, 'trace', '')}{line}\n"
    if not any(is_ours(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
        return None
    if is_sparks(error):
        return f"{one_line(error).rstrip('.')}. Set {SHOW_ALL}=1 to see all that Spark says.\n"
    return user_trace(error) or None


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    said = brief(error)
    if said is None:
        sys.__excepthook__(kind, error, trace)
    else:
        sys.stderr.write(said)


def _place(trace: TracebackType | None) -> str:
    """The line of the script that has asked for what cannot be, as `` (count.py, line 3)``."""
    users = [frame for frame in traceback.extract_tb(trace) if is_users(frame.filename)]
    # What makes a dataclass is called <string>; so is what `python -c` runs.
    users = [frame for frame in users if frame.filename != "<string>"] or users
    return f" ({os.path.basename(users[-1].filename)}, line {users[-1].lineno})" if users else ""
