"""Streams, transforms and operators that the guide speaks of."""

import pyarrow as pa
import pyarrow.compute as pc

import afspark as af

spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
lines = af.read_stream(spark).text("logs/")


def parse(items):
    found = pc.extract_regex(items.column("value"), r"^(?P<time>\d+) (?P<level>\w+) (?P<service>\w+) (?P<millis>\d+)")
    times = pc.struct_field(found, "time").cast(pa.float64())
    millis = pc.struct_field(found, "millis").cast(pa.int64())
    names = {name: pc.struct_field(found, name) for name in ("level", "service")}
    return pa.record_batch({"time": times, "millis": millis, **names})


def only_errors(items):
    return items.filter(pc.equal(items.column("level"), "ERROR"))


def only_slow(items):
    return items.filter(pc.greater(items.column("millis"), 800))


class Counts(af.Operator):
    key = ("service",)

    def states(self):
        return {"counts": af.HashTable(key="string", value="int64", operator_key=True)}

    def process(self, items, states):
        states["counts"].add(items.column("service"), 1)
        return items


class Gate(Counts):
    pass


class Alarms(Counts):
    pass


class Report(Counts):
    pass


class ErrorsPerService(Counts):
    pass


requests = lines.map(parse)
words = stream = af.read_stream(spark).text("logs/", blocks=True)
batches = [pa.record_batch({"service": ["a", "b", "a"]}), pa.record_batch({"service": ["c"]})]
