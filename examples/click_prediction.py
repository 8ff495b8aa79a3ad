"""Online logistic regression over generated click logs, while every worker is destroyed three times.

    clicks -> local models (2 workers) -> global model (1 worker)
                    ^                            |
                    +---------- feedback --------+

Each local worker predicts a click before it learns from it. After every batch the global worker averages the local
models and feeds the result back. At most 10 (Euclidean) of the models may be lost to failures: they cost a little
accuracy for a while, and learning goes on.

Run it with: .venv/bin/python examples/click_prediction.py
"""

import tempfile

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

CLICKS = 2_000_000


def main() -> None:
    spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
    clicks = af.read_stream(spark).clicks(CLICKS, seed=7)
    model = af.logistic_regression(
        clicks,
        features=af.Features(slots=1_000_000),
        # A merged model on its way back is one item; a few may be lost, so none has to be backed up.
        tolerance=af.Approximate(theta=10, items=1000),
    )

    def show(rows, batch):
        for row in rows.collect():
            print(f"batch {row.batch}: {row.items:7,} clicks, {row.prediction_rate:.1%} predicted rightly")

    query = (
        model.writeStream.outputMode("append")
        .foreachBatch(show)
        .option("checkpointLocation", tempfile.mkdtemp())
        .option("batchBytes", 10_000_000)
        .trigger(availableNow=True)
        .inject(FaultPlan(frozenset(InjectedFailure(batch, FaultPhase.BETWEEN) for batch in (2, 4, 6))))
        .start()
    )
    query.awaitTermination()

    query.results("local").show()
    query.results("global").orderBy("weight", ascending=False).show(3)
    print(
        f"losses: {len(query.ledger())}; failures took at most {query.bounds('local')['model']:g} of the local models"
    )
    query.release()


if __name__ == "__main__":
    main()
