"""Trials of the laboratory equal streaming queries on Spark, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from afspark.lab.study import Study
from tests.unit.lab.small_pipelines import diamond, rows


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["loss", pytest.param("duplication", marks=pytest.mark.thorough)])
def test_sampled_trials_equal_their_queries(spark: SparkSession, tmp_path: Path, fault: str) -> None:
    study = Study(
        diamond,
        rows(1_200),
        score="sum:before",
        key="id",
        targets=["source", "seen"],
        fault=fault,
        offsets=[500],
        outages=[70],
        repetitions=1,
        batch_items=300,
        processes=1,
        spark=spark,
        sample=2,
        work=tmp_path,
    )
    samples = study.run().samples
    assert {sample.target for sample in samples} == {"source", "seen"}
    assert [sample.detail for sample in samples if not sample.agrees] == []


def test_a_campaign_is_spread_over_spark(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"score": "sum:before", "key": "id", "targets": ["source"], "offsets": [500], "outages": [70]}
    settings |= {"repetitions": 2, "batch_items": 300}
    here = Study(diamond, rows(1_200), processes=1, work=tmp_path / "here", **settings).run()
    there = Study(diamond, rows(1_200), spark=spark, work=tmp_path / "there", **settings).run()
    assert (there.observations["source"].local == here.observations["source"].local).all()
    assert (there.observations["source"].scores == here.observations["source"].scores).all()
