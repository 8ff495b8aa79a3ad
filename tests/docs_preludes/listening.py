"""A query that takes pushed items."""

import tempfile

import pyarrow as pa

import afspark as af

schema = pa.schema([("sensor", pa.int64()), ("value", pa.float64())])
batch = pa.record_batch({"sensor": [1, 2, 1], "value": [0.1, 0.2, 0.3]}, schema=schema)


class Count(af.Operator):
    key = ("sensor",)
    alpha = 1.0

    def states(self):
        return {"counts": af.HashTable(key="int64", value="int64")}

    def process(self, items, states):
        states["counts"].add(items.column("sensor"), 1)


spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
listening = af.read_stream(spark).pushed(schema).apply(Count(), tolerance=af.Approximate(theta=1, items=10, unacked=10))
query = listening.writeStream.option("checkpointLocation", tempfile.mkdtemp(dir=".")).start()
(receiver,) = query.receivers
