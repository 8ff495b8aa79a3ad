"""The files that the pages' examples read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def lines(service: str, level: str) -> str:
    return "".join(f"{second} {level} {service} {second * 7 % 900} ms\n" for second in range(500))


Path("logs").mkdir()
for number, service in enumerate(("basket", "search", "login")):
    Path("logs", f"{number}.log").write_text(lines(service, "ERROR") + lines(service, "INFO"))
Path("sales").mkdir()
Path("sales", "a.csv").write_text("customer,amount\n" + "".join(f"c{n % 9},{n / 4}\n" for n in range(300)))
Path("orders.csv").write_text(
    "id,customer,amount\n" + "".join(f"{n},{n % 50},{n * 37 % 1000 / 10}\n" for n in range(3000))
)
Path("orders").mkdir()
orders = range(400)
pq.write_table(
    pa.table(
        {
            "id": list(orders),
            "customer": [n % 50 for n in orders],
            "amount": [n * 37 % 1000 / 10 for n in orders],
        }
    ),
    "orders/a.parquet",
)
Path("tweets").mkdir()
Path("tweets", "a.jsonl").write_text(
    "".join(f'{{"time": {n}, "text": "I love spark, but #flink is awful today"}}\n' for n in range(200))
)
Path("plugs").mkdir()
Path("events").mkdir()
Path("taq").mkdir()
Path("taq", "a.csv").write_text("time,SYMBOL,OFR,OFRSIZ\n" + "".join(f"{n},IBM,{100 + n % 3},200\n" for n in range(50)))
