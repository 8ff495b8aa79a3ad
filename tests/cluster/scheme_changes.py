"""A query whose scheme is changed while batches go on, and a host that is lost on the way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from afspark.cluster.spark.anchors import slots_by_host
from afspark.policies.replication import SCHEMES
from tests.cluster.machines import HOSTS, lose_host
from tests.spark.streams import Place, counts, words, write_text

#: How long a scheme may take until it is in force, on a busy machine.
MOST_SECONDS = 60.0
_FILES = 2


def carry_out_changes(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """The schemes of ``changes`` in turn, under one query; the first host is lost once the one of ``lose_under`` is in
    force. Says how many files came, and after which batch each scheme was in force.
    """
    place, files = Place(Path(request["place"])), 0
    schemes = {scheme.name: scheme(batches=2) for scheme in SCHEMES}

    def batch() -> None:
        nonlocal files
        write_text(place.input, _FILES, first=files)
        files += _FILES
        query.processAllAvailable()

    def await_hosts() -> None:
        deadline = time.monotonic() + MOST_SECONDS
        while len(slots_by_host(spark.sparkContext)) < len(HOSTS) and time.monotonic() < deadline:
            time.sleep(0.1)

    await_hosts()
    place.input.mkdir()
    first, *changes = request["changes"]
    query = words(spark, place, schemes[first], keyed=True).trigger(processingTime="0 seconds").start()
    reached: dict[str, int] = {}
    for name in (first, *changes):
        if name != first:
            await_hosts()
            query.set_tolerance(None, schemes[name])
        deadline = time.monotonic() + MOST_SECONDS
        while name not in reached and time.monotonic() < deadline:
            batch()
            if set(query.protections().values()) == {name}:
                reached[name] = query.totals.batches
        if name == request["lose_under"]:
            lose_host(HOSTS[0], place.segments / HOSTS[0])
            batch()
    query.stop()
    return {
        "files": files,
        "reached": reached,
        "counts": counts(query),
        "ledger": query.ledger(),
        "bound": query.bounds()["counts"],
        "homes": [row["host"] for row in query.tolerance()],
    }
