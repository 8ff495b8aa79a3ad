"""Which quotes ask less than a stock has lately cost, while every worker is destroyed twice.

    source -> TradeQuote -> TradeFilter -> Aggregator -> VWAP -> BargainIndex -> sink
                         -> QuoteFilter ----------------------->

An average is taken over the five most recent trades of a stock. Failures may move it by at most 10 cents, so that a
gain is off by at most that much for each share.

Run it with: .venv/bin/python examples/bargains.py
With real trades and quotes: see load_events in afspark.sources.market_files, then read_stream(spark).parquet(…).
"""

import tempfile

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

FAILURES = FaultPlan(frozenset({InjectedFailure(2, FaultPhase.BETWEEN), InjectedFailure(4, FaultPhase.APPLYING)}))


def main() -> None:
    spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
    events = af.read_stream(spark).market_events(1_000_000, seed=3, symbols=500)
    bargains = af.bargain_discovery(events, tolerance=af.Approximate(theta=0.1))
    gains: dict[str, float] = {}

    def take(rows, batch):
        for row in rows.groupBy("ticker").sum("gain").collect():
            gains[row.ticker] = gains.get(row.ticker, 0.0) + row["sum(gain)"]

    query = (
        bargains.writeStream.outputMode("append")
        .foreachBatch(take)
        .option("checkpointLocation", tempfile.mkdtemp())
        .option("batchBytes", 8_000_000)
        .trigger(availableNow=True)
        .inject(FAILURES)
        .start()
    )
    query.awaitTermination()

    print(f"gains of ${sum(gains.values()):,.0f} with {len(gains)} stocks; the most with:")
    for ticker in sorted(gains, key=gains.__getitem__, reverse=True)[:5]:
        print(f"  {ticker:4} ${gains[ticker]:,.0f}")
    bound = query.bounds("Aggregator")["price"] + query.bounds()["averages"]
    print(f"losses: {len(query.ledger())}; an average was off by at most ${bound:.4f}")
    query.release()


if __name__ == "__main__":
    main()
