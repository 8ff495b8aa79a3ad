"""Errors as whoever awaits a query meets them."""

from __future__ import annotations

import os

from afspark.cluster.spark.foreign_errors import own_error
from afspark.cluster.spark.script_errors import SHOW_ALL
from afspark.errors import AfsparkError
from afspark.model.user_trace import user_frames


def plain(error: BaseException) -> BaseException:
    """The error of ours that Spark has only quoted, or the one that was raised; without frames and causes of ours."""
    found = own_error(error) or error
    if os.environ.get(SHOW_ALL):
        return found
    if isinstance(found, AfsparkError):
        found.__cause__, found.__suppress_context__ = None, True
        return found.with_traceback(None)
    return found.with_traceback(user_frames(found.__traceback__))
