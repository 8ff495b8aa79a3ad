"""What the example at the top of the page about pushed streams has."""

import pyarrow as pa

import afspark as af

schema = pa.schema([("sensor", pa.int64()), ("value", pa.float64())])
batch = pa.record_batch({"sensor": [1, 2, 1], "value": [0.1, 0.2, 0.3]}, schema=schema)


class Count(af.Operator):
    key = ("sensor",)
    alpha = 1.0

    def states(self):
        return {"counts": af.HashTable(key="int64", value="int64", operator_key=True)}

    def process(self, items, states):
        states["counts"].add(items.column("sensor"), 1)


spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
