"""What was given to spark-submit, in the environment or in a file goes before our settings."""

from __future__ import annotations

from pathlib import Path

from afspark.cluster.spark.outside_settings import defaults, outside_settings, submit_args
from afspark.cluster.spark.session import chosen_settings


def test_a_master_given_outside_is_taken() -> None:
    assert (
        chosen_settings(None, None, {}, {"spark.master": "spark://there:7077"})["spark.master"] == "spark://there:7077"
    )
    assert chosen_settings(None, None, {}, {"spark.master": "local[3]"})["spark.master"] == "local[3,4]"
    assert chosen_settings(None, None, {}, {})["spark.master"] == "local[*,4]"


def test_the_programs_own_word_goes_first() -> None:
    outside = {"spark.master": "local[3]", "spark.app.name": "submitted", "spark.locality.wait": "1s"}
    made = chosen_settings("local[2,1]", "mine", {"spark.locality.wait": "2s"}, outside)
    assert (made["spark.master"], made["spark.app.name"]) == ("local[2,1]", "mine")
    assert made["spark.locality.wait"] == "2s"


def test_settings_given_outside_are_not_set_again() -> None:
    made = chosen_settings(None, None, {}, {"spark.locality.wait": "1s", "spark.app.name": "submitted"})
    assert "spark.locality.wait" not in made and made["spark.app.name"] == "submitted"
    assert made["spark.speculation"] == "false"


def test_settings_of_local_masters_are_for_them_alone() -> None:
    assert "spark.shuffle.compress" in chosen_settings(None, None, {}, {})
    assert "spark.shuffle.compress" not in chosen_settings(None, None, {}, {"spark.master": "spark://there:7077"})


def test_arguments_for_pyspark() -> None:
    found = submit_args("--master=local[3] --conf 'spark.a=b c' -c spark.d=e --executor-memory 1g pyspark-shell")
    assert found == {"spark.master": "local[3]", "spark.a": "b c", "spark.d": "e", "spark.executor.memory": "1g"}


def test_a_file_of_defaults(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text("# spark.no 1\nspark.master   spark://there:7077\nspark.b = two words\n\nspark.alone\nother 3\n")
    assert defaults(file) == {"spark.master": "spark://there:7077", "spark.b": "two words"}
    assert defaults(tmp_path / "none") == {}
    given = outside_settings({"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": "--master local pyspark-shell"})
    assert given == {"spark.master": "local", "spark.b": "two words"}
