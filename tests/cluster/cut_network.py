"""A query on hosts with a network of their own, of which one is cut off while batches go on.

``python -m tests.cluster.cut_network PLACE SCHEME`` writes what came of it to ``answer.json`` in the place.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from afspark.bench.bench_hosts import started_hosts
from tests.cluster.driver import EVENTS, carry_out, make_session
from tests.spark.streams import Place

HOSTS = 2


def main(root: str, scheme: str) -> None:
    with started_hosts(HOSTS, slots=2, session=make_session) as hosts:
        hosts.complete()
        first = hosts.network.hosts[0]

        def cut(place: Place, host: str) -> None:
            hosts.network.cut(host)

        def mend(place: Place, host: str) -> None:
            hosts.network.mend(host)

        EVENTS.update(cut=cut, mend=mend)
        request = {"place": root, "tolerance": [scheme, 3600], "keyed": True, "workers": 2}
        answer = carry_out(hosts.spark, {**request, "events": {"1": ["cut", first], "3": ["mend", first]}})
        answer["hosts"] = list(hosts.network.hosts)
    Path(root, "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
