"""Batches of a streaming DataFrame that Spark has committed, made again by Spark itself.

Spark runs the last batch of a checkpoint again if that batch has offsets and no commit. So a second query of the same
DataFrame, on a scratch checkpoint that ends in that way with the batch in question, is handed exactly that batch. What
it is handed stays bound to its offsets after the query has ended.

The second query has an identity of its own and runs in a copy of the session: the main query, its listeners and
``spark.streams`` do not hear of it. The scratch checkpoint is a folder of the driver; executors read none for
DataFrames without state.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from afspark.cluster.remade_frame import RemadeFrame
from afspark.cluster.spark.file_source_log import file_range, paths_between
from afspark.cluster.spark.session import LOCAL_FILE_MANAGER
from afspark.errors import ObjectMissing
from afspark.numbers import Batch
from afspark.store import Store
from afspark.store.spark_files import BARE_COMMIT

LOG = logging.getLogger("afspark")

#: How often a batch is tried: a source may be away for a moment.
TRIES = 3
PAUSE_SECONDS = 2.0
#: Lines of an offset file before those of the sources.
_HEAD = 2


class SparkPastFrames:
    """The past batches of one query, whose checkpoint is in a store."""

    def __init__(self, frame: DataFrame, checkpoint: Store) -> None:
        self._frame, self._checkpoint = frame, checkpoint

    def remake(self, batch: Batch) -> RemadeFrame:
        """The batch, and which of its files are gone; without a frame if Spark cannot make it."""
        why = ""
        for attempt in range(TRIES):
            time.sleep(attempt * PAUSE_SECONDS)
            scratch = Path(tempfile.mkdtemp(prefix="afspark-replay-"))
            try:
                self._copy(batch, scratch)
                gone = self._gone(batch)
                return RemadeFrame(self._handed_over(batch, scratch), gone)
            except (PySparkException, Py4JError, ObjectMissing, ValueError) as error:
                why = str(error).partition("\n")[0]
                LOG.warning("Batch %d of the DataFrame could not be made again: %s", batch, why)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return RemadeFrame(None, [f"batch {batch} of the DataFrame ({why})"])

    def _copy(self, batch: Batch, scratch: Path) -> None:
        """Writes a checkpoint whose last batch is ``batch``, which is not committed."""
        files = {"metadata": json.dumps({"id": str(uuid.uuid4())}).encode()}
        for name in self._log("sources"):
            files[name] = self._checkpoint.get(name)
        for number in range(max(batch - 1, 0), batch + 1):
            files[f"offsets/{number}"] = self._checkpoint.get(f"offsets/{number}")
        if batch > 0:
            files[f"commits/{batch - 1}"] = self._commit(Batch(batch - 1))
        for name, content in files.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)

    def _log(self, folder: str) -> list[str]:
        """The files below a folder of the checkpoint, without the hidden ones of file systems."""
        return [name for name in self._checkpoint.list(folder) if not name.rsplit("/", 1)[-1].startswith(".")]

    def _commit(self, batch: Batch) -> bytes:
        try:
            return self._checkpoint.get(f"commits/{batch}")
        except ObjectMissing:
            return BARE_COMMIT

    def _handed_over(self, batch: Batch, scratch: Path) -> DataFrame:
        """What Spark hands over for the last batch of a scratch checkpoint."""
        handed: list[DataFrame] = []

        def take(frame: DataFrame, number: int) -> None:
            if number == batch:
                handed.append(frame)

        query = (
            self._copied_frame()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", scratch.as_uri())
            # Runs one batch and ends; here that is the one without a commit.
            .trigger(once=True)
            .start()
        )
        query.awaitTermination()
        if not handed:
            raise ObjectMissing(f"Spark has not run batch {batch} again.", name=f"offsets/{batch}")
        return handed[0]

    def _copied_frame(self) -> DataFrame:
        """The DataFrame in a session of its own, with the settings of the first."""
        context: Any = self._frame.sparkSession.sparkContext
        session = self._frame._jdf.sparkSession().cloneSession()
        session.conf().set(*LOCAL_FILE_MANAGER)
        dataset = context._jvm.org.apache.spark.sql.classic.Dataset
        plan = self._frame._jdf.logicalPlan()
        return DataFrame(dataset.ofRows(session, plan), SparkSession(context, session))

    # --- files that are gone --------------------------------------------------------------------------------

    def _gone(self, batch: Batch) -> list[str]:
        """Files of the batch that are not there any more: Spark's file source passes over them in silence."""
        before, after = self._offsets(Batch(batch - 1)), self._offsets(batch)
        gone = []
        for source, reached in enumerate(after):
            wanted = file_range(before[source] if source < len(before) else None, reached)
            if wanted:
                logs = [self._checkpoint.get(name) for name in self._log(f"sources/{source}")]
                gone += [path for path in paths_between(logs, wanted) if not self._is_there(path)]
        if gone:
            names = ", ".join(gone)
            LOG.warning("Batch %d leaves out input that was removed while the query was down: %s.", batch, names)
        return gone

    def _offsets(self, batch: Batch) -> list[Any]:
        if batch < 0:
            return []
        lines = self._checkpoint.get(f"offsets/{batch}").decode().splitlines()[_HEAD:]
        return [None if line == "-" else json.loads(line) for line in lines]

    def _is_there(self, path: str) -> bool:
        context: Any = self._frame.sparkSession.sparkContext
        place = context._jvm.org.apache.hadoop.fs.Path(context._jvm.java.net.URI(path))
        return bool(place.getFileSystem(context._jsc.hadoopConfiguration()).exists(place))
