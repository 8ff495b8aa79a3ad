"""What the second example of the README takes from the first, with the time of each line."""

import pyarrow as pa
import pyarrow.compute as pc

import afspark as af

spark = af.session("local[2]", config={"spark.ui.enabled": "false"})


class ErrorsPerService(af.Operator):
    key = ("service",)

    def states(self):
        return {"errors": af.HashTable(key="string", value="int64", operator_key=True)}

    def process(self, items, states):
        states["errors"].add(items.column("service"), 1)


def parse(lines):
    found = pc.extract_regex(lines.column("value"), r"^(?P<time>\d+) ERROR (?P<service>\w+)")
    found = found.filter(pc.is_valid(found))
    times = pc.struct_field(found, "time").cast(pa.float64())
    return pa.record_batch({"time": times, "service": pc.struct_field(found, "service")})
