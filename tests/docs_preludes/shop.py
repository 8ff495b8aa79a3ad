"""The pipeline of the laboratory's first example."""

import afspark as af
from shop import Newest, pipeline

spark = af.session("local[2]", config={"spark.ui.enabled": "false"})


def deliver(rows, batch):
    rows.collect()
