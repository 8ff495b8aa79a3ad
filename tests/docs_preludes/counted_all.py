import time

deadline = time.monotonic() + 60
while query.totals.items < 3 and time.monotonic() < deadline:
    time.sleep(0.1)
assert query.totals.items == 3
