client = Client(f"grpc://{receiver}", "sensor-12", schema)
client.connect()
client.send(client.lanes[0], batch)
client.wait()
client.close()
import time

deadline = time.monotonic() + 60
while query.totals.items < 3 and time.monotonic() < deadline:
    time.sleep(0.1)
assert query.totals.items == 3
