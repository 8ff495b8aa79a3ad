"""Small streams of everything that the algorithms read."""

import pyarrow.parquet as pq

import afspark as af
from afspark.sources import MarketEvents
from afspark.sources.market_files import write_events

spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
lines = af.read_stream(spark).text("logs/")
packets = af.read_stream(spark).packets(5_000)
left, right = (af.read_stream(spark).visits(5_000, stream=stream) for stream in (0, 1))


def show(rows, batch):
    rows.collect()


def keep(source, file):
    """What a generator makes, as a Parquet file."""
    planner = source.planner(None)
    chunks = planner.chunks(planner.initial(), planner.discover())
    batches = [batch for chunk in chunks for batch in source.read(chunk)]
    with pq.ParquetWriter(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


keep(af.read_stream(spark).smart_plugs(5_000).inflows[0].source, "plugs/a.parquet")
write_events(MarketEvents(5_000, seed=1), "events/a.parquet")
