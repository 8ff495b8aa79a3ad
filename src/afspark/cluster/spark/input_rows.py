"""Tells Spark how many rows a batch had, which workers have read themselves: its listeners and its UI hear of it.

Reaches behind PySpark's interface: Spark counts the rows of a source by a metric of the plan's leaf.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_METRIC = "numOutputRows"


def tell_input_rows(query: StreamingQuery, rows: int) -> None:
    """Sets the number for the batch at work. Whatever goes wrong in here is logged: no query ends because of it."""
    try:
        wrapper: Any = query._jsq
        plan = wrapper.streamingQuery().lastExecution().executedPlan()
        leaves = plan.collectLeaves()
        left = rows
        for number in range(leaves.size()):
            metrics = leaves.apply(number).metrics()
            if metrics.contains(_METRIC):
                # All in the first: batches do not say how many rows each of several sources had.
                metrics.apply(_METRIC).set(left)
                left = 0
    except Exception as error:  # noqa: BLE001 - only numbers for people
        logger.debug("Spark was not told how many rows a batch had: %s", error)
