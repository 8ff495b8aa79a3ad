"""What the houses of a street will draw from the next hour but one on, while every worker is destroyed twice.

    readings of smart plugs -> conversion -> prediction, by house

A prediction is the mean of the present hour and the median of that hour of the day on past days. What failures leave
open about it is told beside it.

Run it with: .venv/bin/python examples/house_loads.py
With the readings of the DEBS 2014 Grand Challenge: afspark run smartgrid --input sorted.csv, or
read_stream(spark).csv("sorted.csv", label=None, names=("id", "timestamp", "value", …)).
"""

import tempfile

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

FAILURES = FaultPlan(frozenset({InjectedFailure(2, FaultPhase.BETWEEN), InjectedFailure(4, FaultPhase.APPLYING)}))


def main() -> None:
    spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
    readings = af.read_stream(spark).smart_plugs(1_000_000, seed=3, houses=4, days=4)
    predictions = af.load_prediction(readings, minutes=(60,), tolerance=af.Approximate(theta=20))
    made: dict[tuple[int, int], float] = {}
    came: dict[tuple[int, int], float] = {}

    def take(rows, batch):  # predictions from the hours that are over
        for row in rows.filter("plug is null").collect():
            made[row.house, row.start] = row.prediction
            came[row.house, row.start - 2 * 3600] = row.load

    query = (
        predictions.writeStream.outputMode("append")
        .foreachBatch(take)
        .option("checkpointLocation", tempfile.mkdtemp())
        .option("batchBytes", 5_000_000)
        .trigger(availableNow=True)
        .inject(FAILURES)
        .start()
    )
    query.awaitTermination()

    both = [(made[key], came[key]) for key in made if key in came]
    error = sum(abs(prediction - load) for prediction, load in both) / len(both)
    print(f"{len(both)} predictions: {error:.0f} W off, of {sum(load for _, load in both) / len(both):.0f} W")
    print("predictions that are still to come true:")
    query.results().filter("plug is null").select("house", "load", "past", "prediction", "low", "high").show()
    print(f"losses: {len(query.ledger())}; a count of readings lacks at most {query.bounds()['readings']:g}")
    query.release()


if __name__ == "__main__":
    main()
