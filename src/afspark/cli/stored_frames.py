"""DataFrames in a place that Spark may have no connector for: they go through the driver, as Arrow."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from afspark.store import open_store
from afspark.store.address_schemes import scheme_of

_PART = "part-00000.parquet"


def is_remote(address: str) -> bool:
    """Whether an address is one that Spark alone may not get to."""
    return scheme_of(address) not in ("", "file")


def put_frame(frame: DataFrame, address: str, folder: str = "") -> None:
    """Writes all rows as one Parquet file below a folder of that place; one that is there is replaced."""
    buffer = io.BytesIO()
    pq.write_table(frame.toArrow(), buffer)
    open_store(address).put(f"{folder}/{_PART}" if folder else _PART, buffer.getvalue())


def stored_frame(spark: SparkSession, address: str, folder: str) -> DataFrame | None:
    """The rows of all such files below a folder, in the order of their names; None if there are none."""
    store = open_store(address)
    tables = [pq.read_table(io.BytesIO(store.get(name))) for name in store.list(folder)]
    return spark.createDataFrame(pa.concat_tables(tables)) if tables else None
