"""How often do two streams of packets visit the same host in the same second? Estimated from a tenth of them.

Run it with: .venv/bin/python examples/same_hosts.py
With captures of your own: read_stream(spark).pcap("monday.pcap") in place of .visits(...).
"""

import tempfile

import afspark as af


def main() -> None:
    spark = af.session("local[2]")
    join = af.OnlineJoin(on=("dst", "second"), rate=0.1, value="bytes")
    left = af.read_stream(spark).visits(1_000_000, stream=0)
    right = af.read_stream(spark).visits(1_000_000, stream=1)

    query = (
        left.map(join.left)
        .union(right.map(join.right))
        .apply(join, workers=2, tolerance=af.Approximate(theta=1_000))
        .writeStream.outputMode("complete")
        .foreachBatch(lambda rows, batch: rows.filter("aggregate = 'count'").show())
        .option("checkpointLocation", tempfile.mkdtemp())
        .option("batchBytes", 8_000_000)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    query.results().show()
    print("backed up:", query.totals.backups, "samples that failures can have taken:", query.bounds())
    query.release()


if __name__ == "__main__":
    main()
