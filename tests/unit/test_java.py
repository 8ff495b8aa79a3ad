"""The search for Java, against programs that answer as real ones do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from afspark.cluster.spark.java import SPARK_MODULE, JavaRuntime, find_java_home, parse_settings, probe
from afspark.errors import UsageError

SETTINGS = """\
Property settings:
    file.encoding = UTF-8
    java.home = {home}
    java.io.tmpdir = /var/tmp
    java.specification.name = Java Platform API Specification
    java.specification.version = {version}
    java.vm.specification.version = {version}

openjdk version "{version}" 2025-04-15
"""


def fake_java(home: Path, version: str, *, complete: bool = True, settings_home: Path | None = None) -> Path:
    """A program that prints settings on stderr, and fails when asked for a module it lacks."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if complete else f'case "$*" in *{SPARK_MODULE}*) echo "not found"; exit 1;; esac\n'
    text = SETTINGS.format(home=settings_home or home, version=version)
    program.write_text(f"#!/bin/sh\n{refusal}/bin/cat >&2 <<'END'\n{text}END\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def environment(*, home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    found = {} if home is None else {"JAVA_HOME": str(home)}
    return found if path is None else {**found, "PATH": f"{path / 'bin'}{os.pathsep}/nowhere"}


@pytest.mark.parametrize(("version", "major"), [("1.8", 8), ("11", 11), ("17", 17), ("25", 25)])
def test_settings_give_home_and_release(version: str, major: int) -> None:
    text = SETTINGS.format(home="/usr/lib/jvm/a java", version=version)
    expected = JavaRuntime(home=Path("/usr/lib/jvm/a java"), major=major, complete=True)
    assert parse_settings(text, complete=True) == expected


@pytest.mark.parametrize("text", ["", "bash: java: not found", "java.home = /x", SETTINGS.replace("{version}", "?")])
def test_other_output_is_no_java(text: str) -> None:
    assert parse_settings(text, complete=True) is None


@pytest.mark.parametrize(
    ("version", "complete", "usable"), [("16", True, False), ("17", True, True), ("21", False, False)]
)
def test_usable_means_recent_and_complete(tmp_path: Path, version: str, complete: bool, usable: bool) -> None:
    runtime = probe(fake_java(tmp_path, version, complete=complete))
    assert runtime == JavaRuntime(home=tmp_path, major=int(version), complete=complete)
    assert runtime.usable is usable


def test_what_cannot_be_run_is_no_java(tmp_path: Path) -> None:
    broken = tmp_path / "java"
    broken.write_bytes(b"\x00\x01")
    broken.chmod(0o755)
    assert probe(broken) is None
    assert probe(tmp_path / "absent") is None


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    fake_java(first, "17")
    fake_java(second, "21")
    assert find_java_home(environment(home=first, path=second)) == first


def test_unusable_java_home_gives_way_to_path(tmp_path: Path) -> None:
    old, good = tmp_path / "old", tmp_path / "good"
    fake_java(old, "11")
    fake_java(good, "17")
    assert find_java_home(environment(home=old, path=good)) == good


def test_home_is_the_one_java_reports_not_the_place_of_a_wrapper(tmp_path: Path) -> None:
    real = tmp_path / "jvm"
    fake_java(tmp_path / "shims", "17", settings_home=real)
    assert find_java_home(environment(path=tmp_path / "shims")) == real


def test_no_java_is_a_usage_error_of_one_line_with_a_remedy(tmp_path: Path) -> None:
    fake_java(tmp_path / "trimmed", "21", complete=False)
    with pytest.raises(UsageError) as caught:
        find_java_home(environment(home=tmp_path / "gone", path=tmp_path / "trimmed"))
    assert set(caught.value.rejected) == {"JAVA_HOME", "PATH"}
    assert SPARK_MODULE in caught.value.rejected["PATH"]
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_empty_environment_names_both_places() -> None:
    with pytest.raises(UsageError) as caught:
        find_java_home({})
    assert set(caught.value.rejected) == {"JAVA_HOME", "PATH"}
