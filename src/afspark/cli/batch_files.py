"""What a query hands to its sink, kept in files below the checkpoint, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from afspark.api.stream import StatefulStream
from afspark.api.writer import StreamWriter
from afspark.cli.stored_frames import is_remote, put_frame, stored_frame


@dataclass(frozen=True)
class BatchFiles:
    """Parquet files in a folder of the checkpoint."""

    name: str

    def written(self, stateful: StatefulStream, checkpoint: str) -> StreamWriter:
        """The writer that keeps what the operator sends, or the windows it closes."""

        def save(rows: DataFrame, batch: int) -> None:
            # A folder for each batch: one that comes again after a crash replaces itself.
            if is_remote(checkpoint):
                put_frame(rows, checkpoint, f"{self.name}/batch={batch:09d}")
            else:
                rows.write.mode("overwrite").parquet(f"{self._folder(checkpoint)}/batch={batch}")

        return stateful.writeStream.outputMode("append").foreachBatch(save)

    def read(self, spark: SparkSession, checkpoint: str, schema: str) -> DataFrame:
        """All that is kept; ``schema`` is for the case that nothing is."""
        if is_remote(checkpoint):
            found = stored_frame(spark, checkpoint, self.name)
            return spark.createDataFrame([], schema) if found is None else found
        try:
            return spark.read.parquet(self._folder(checkpoint)).drop("batch")
        except AnalysisException:
            return spark.createDataFrame([], schema)

    def _folder(self, checkpoint: str) -> str:
        return f"{checkpoint}/{self.name}"
