"""A query that has come to the end of its input, and a writer for another one like it."""

import tempfile

import afspark as af

spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
counted = af.read_stream(spark).text("logs/", blocks=True)
counted = counted.apply(af.WordCount(), name="counts", tolerance=af.BarrierSnapshot(batches=2))
writer = counted.writeStream.option("batchBytes", 10_000).trigger(availableNow=True)
query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=".")).start()
query.awaitTermination()
writer = writer.option("checkpointLocation", tempfile.mkdtemp(dir="."))
