"""Where rows go: what `StreamWriter` is told becomes a function that takes the rows of each batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from afspark.api.query import Deliver
from afspark.errors import UsageError

#: Sinks that write files, and have to be told where.
FILES = frozenset({"parquet", "orc", "csv", "json", "text", "avro", "xml"})
_OWN_SINKS: dict[str, tuple[str, ...]] = {"console": ("numRows", "truncate"), "memory": (), "noop": ()}


@dataclass(frozen=True, kw_only=True)
class Sink:
    """What a writer was told of where its rows go; ``options``: without those of the query itself."""

    mode: str
    format: str | None = None
    path: str | None = None
    table: str | None = None
    columns: tuple[str, ...] = ()
    deliver: Deliver | None = None
    query_name: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def takes_options(self) -> tuple[str, ...] | None:
        """The options that it has; None if only Spark knows them."""
        if self.deliver is not None or (self.format is None and self.table is None):
            return ()
        return _OWN_SINKS.get((self.format or "").lower())

    @property
    def _keeps_all(self) -> bool:
        """Whether rows go to files, a table or another place of Spark's, to which a batch can only add."""
        kept = self.format is not None and self.format.lower() not in _OWN_SINKS
        return self.deliver is None and (self.table is not None or kept)

    @property
    def _place_by_option(self) -> str | None:
        return next((value for name, value in self.options.items() if name.lower() == "path"), None)

    @property
    def _place(self) -> str | None:
        """Where rows go: what `start` was told, or an option, as in Spark."""
        return self.path or self._place_by_option

    @property
    def told(self) -> str:
        """What it is, for people."""
        if self.deliver is not None:
            return "function"
        return f"table[{self.table}]" if self.table is not None else f"{self.format}[{self._place or ''}]"

    def check(self) -> None:
        """UsageError for what cannot be written."""
        where = f"table {self.table!r}" if self.table is not None else f"format {self.format!r}"
        if self._keeps_all and self.mode == "complete":
            raise UsageError(
                f"In complete mode every batch would add all results to the {where} once more.",
                remedy="Use outputMode('append') or outputMode('update') (complete is the default), or overwrite in"
                " foreachBatch.",
                mode=self.mode,
            )
        if self.deliver is None and self.table is None and (self.format or "").lower() in FILES and not self._place:
            raise UsageError(f"The {where} needs a path.", remedy="Name a folder: start('out/').")
        if self.path and self._place_by_option:
            raise UsageError(
                f"The path is {self.path!r} for start(), and {self._place_by_option!r} for an option.",
                remedy="Leave one of them out.",
            )
        if self.columns and not self._keeps_all:
            raise UsageError(
                "Only files and tables are partitioned by columns.",
                remedy="Leave out partitionBy, or use it in foreachBatch.",
                columns=self.columns,
            )
        if (self.format or "").lower() == "memory" and self.deliver is None and not self.query_name:
            raise UsageError("The memory sink needs a name for its table.", remedy="Give one: queryName('counts').")

    def delivery(self) -> Deliver | None:
        """What is done with the rows of a batch; None if nobody wants them."""
        if self.deliver is not None:
            return self.deliver
        if self.table is not None:
            return self._into_table
        if self.format is None:
            return None
        if self.format.lower() == "console":
            return self._show
        if self.format.lower() == "memory":
            return MemoryTable(self.query_name or "", complete=self.mode == "complete").take
        return self._save

    def _save(self, frame: DataFrame, batch: int) -> None:
        self._writer(frame).save(self.path)

    def _into_table(self, frame: DataFrame, batch: int) -> None:
        assert self.table is not None
        self._writer(frame).saveAsTable(self.table)

    def _writer(self, frame: DataFrame) -> Any:
        writer = frame.write.mode("append").options(**self.options)
        writer = writer.format(self.format) if self.format is not None else writer
        return writer.partitionBy(*self.columns) if self.columns else writer

    def _show(self, frame: DataFrame, batch: int) -> None:
        given = {name.lower(): value for name, value in self.options.items()}
        line = "-" * 43
        print(f"{line}\nBatch: {batch}\n{line}")  # noqa: T201 - this is what a console sink is for
        frame.show(int(given.get("numrows", "20")), truncate=given.get("truncate", "true").lower() == "true")


class MemoryTable:
    """Rows of all batches, or of the last one, in the driver's memory, as a table that Spark knows by its name."""

    def __init__(self, name: str, *, complete: bool) -> None:
        self._name, self._complete = name, complete
        self._rows: dict[int, pa.Table] = {}

    def take(self, frame: DataFrame, batch: int) -> None:
        if self._complete:
            self._rows.clear()
        # By number: a batch that is handed out twice is there once.
        self._rows[batch] = frame.toArrow()
        whole = pa.concat_tables(self._rows.values())
        frame.sparkSession.createDataFrame(whole, frame.schema).createOrReplaceTempView(self._name)


def row_by_row(given: Any) -> Deliver:
    """What ``foreach`` makes of a function of a row, or of an object with ``process``, maybe ``open`` and ``close``."""
    if not callable(given) and not callable(getattr(given, "process", None)):
        raise UsageError(
            f"{given!r}, given to foreach, takes no rows.",
            remedy="Give a function of a row, or an object with process(row).",
        )
    if isinstance(given, type):
        raise UsageError(
            f"{given.__name__} is a class, not something that takes rows.", remedy=f"Write foreach({given.__name__}())."
        )

    def deliver(frame: DataFrame, batch: int) -> None:
        frame.foreachPartition(partial(_in_partition, given, batch))

    return deliver


def _in_partition(given: Any, batch: int, rows: Iterable[Any]) -> None:
    context = TaskContext.get()
    each(given, batch, 0 if context is None else context.partitionId(), rows)


def each(given: Any, batch: int, partition: int, rows: Iterable[Any]) -> None:
    """Hands the rows of a partition on, as Spark does: ``close`` is told what was raised, None if nothing was."""
    process, opened, close = (getattr(given, name, None) for name in ("process", "open", "close"))
    if process is None:
        process, opened, close = given, None, None
    failed: Exception | None = None
    try:
        if opened is None or opened(partition, batch):
            for row in rows:
                process(row)
    except Exception as error:
        failed = error
        raise
    finally:
        if close is not None:
            close(failed)
