"""What people say about three subjects, over ten seconds at a time, in a day of bursts that lasts two minutes.

    posts -> filter by keywords -> sentiment over sliding windows

Every worker is destroyed twice on the way. A window then lacks at most 200 texts about a subject, and says itself how
many it can lack: none, if nothing failed while it was open.

Run it with: .venv/bin/python examples/moods_of_subjects.py
With texts of your own: read_stream(spark).jsonl("tweets/", numeric=("time",), categorical=("text",)), or any DataFrame.
"""

import tempfile

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

SUBJECTS = ["football", "music", "weather"]
FAILURES = FaultPlan(frozenset({InjectedFailure(3, FaultPhase.BETWEEN), InjectedFailure(5, FaultPhase.APPLYING)}))


def main() -> None:
    spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
    posts = af.read_stream(spark).posts(400_000, seed=11, seconds=120)
    moods = af.keyword_sentiment(posts, SUBJECTS, tolerance=af.Approximate(theta=200))

    def show(rows, batch):
        tens = rows.filter("window_end % 10 = 0").orderBy("window_end", "keyword").collect()
        for row in tens:
            lacking = f"  may lack {row.bound_texts:.0f} texts" if row.bound_texts else ""
            print(f"until {row.window_end:3.0f} s: {row.texts:6,} about {row.keyword:8} {row['mean']:+.2f}{lacking}")

    query = (
        moods.writeStream.outputMode("append")  # each window once it is over
        .option("bounds", True)
        .foreachBatch(show)
        .option("checkpointLocation", tempfile.mkdtemp())
        .option("batchBytes", 4_000_000)
        .trigger(availableNow=True)
        .inject(FAILURES)
        .start()
    )
    query.awaitTermination()
    query.end()  # closes the windows that are still open

    print(f"losses: {len(query.ledger())}, backups: {query.totals.backups['bytes']:,} bytes")
    query.release()


if __name__ == "__main__":
    main()
