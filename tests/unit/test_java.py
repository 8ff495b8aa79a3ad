"""The search for Java, against programs that answer as real ones do."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from afspark.cluster.spark.java import JavaRuntime, described, find_java_home, parse_settings, probe
from afspark.cluster.spark.packaged_java import PACKAGE, SPARK_MODULE, is_launcher_home, launcher_home
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


def released(home: Path, version: str, modules: str) -> Path:
    """A runtime that says on paper what it is, and does not run."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nMODULES="java.base {modules}"\n')
    return program


@pytest.mark.parametrize(
    ("version", "modules", "usable"),
    [("17.0.15", SPARK_MODULE, True), ("25", SPARK_MODULE, True), ("21.0.1", "", False), ("1.8.0_402", "", False)],
)
def test_a_runtime_that_says_what_it_is_need_not_be_asked(
    tmp_path: Path, version: str, modules: str, usable: bool
) -> None:
    program = released(tmp_path / "jvm", version, modules)
    runtime = described(program)
    assert runtime is not None and runtime.usable is usable and runtime.home == tmp_path / "jvm"
    link = tmp_path / "shims" / "bin" / "java"
    link.parent.mkdir(parents=True)
    link.symlink_to(program)
    assert described(link) == runtime
    if usable:
        assert find_java_home(environment(path=tmp_path / "shims")) == tmp_path / "jvm"


def test_what_does_not_say_all_is_asked(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    assert described(fake_java(tmp_path / "17" / "full", "17")) is None
    (released(tmp_path / "half", "17", "").parent.parent / "release").write_text('JAVA_VERSION="17"\n')
    assert described(tmp_path / "half" / "bin" / "java") is None


def test_home_is_the_one_java_reports_not_the_place_of_a_wrapper(tmp_path: Path) -> None:
    real = tmp_path / "jvm"
    fake_java(tmp_path / "shims", "17", settings_home=real)
    assert find_java_home(environment(path=tmp_path / "shims")) == real


def trimmed_package(folder: Path) -> Path:
    return fake_java(folder / "a package", "25", complete=False)


def test_a_packaged_java_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    program = trimmed_package(tmp_path)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = find_java_home(environ, packaged=lambda: program)
    assert is_launcher_home(home)
    assert home.is_relative_to(tmp_path / "cache")
    # What Spark is pointed to stays what it is pointed to: the runtime's own home would fail on Spark's module.
    assert find_java_home(environ | {"JAVA_HOME": str(home)}, packaged=lambda: None) == home


def test_the_launcher_hands_on_all_other_arguments_as_they_are(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text('#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\n')
    program.chmod(0o755)
    launcher = launcher_home(program, {"XDG_CACHE_HOME": str(tmp_path)}) / "bin" / "java"
    given = ["-cp", "a b:*", f"--add-modules={SPARK_MODULE}", "-Dx='$HOME'", "", "Main", "--add-modules=other"]
    done = subprocess.run([launcher, *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [one for one in given if SPARK_MODULE not in one]


def test_an_installed_java_comes_before_the_packaged_one(tmp_path: Path) -> None:
    fake_java(tmp_path / "full", "17")
    assert find_java_home(environment(home=tmp_path / "full"), packaged=lambda: trimmed_package(tmp_path)) == (
        tmp_path / "full"
    )


def test_a_packaged_java_that_is_gone_is_no_java(tmp_path: Path) -> None:
    program = trimmed_package(tmp_path)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = find_java_home(environ, packaged=lambda: program)
    program.unlink()
    with pytest.raises(UsageError) as caught:
        find_java_home(environ | {"JAVA_HOME": str(home)}, packaged=lambda: None)
    assert set(caught.value.rejected) == {"JAVA_HOME", "PATH", PACKAGE}


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as caught:
        find_java_home({"XDG_CACHE_HOME": str(tmp_path / "file")}, packaged=lambda: trimmed_package(tmp_path))
    assert str(tmp_path / "file") in caught.value.rejected[PACKAGE]


def test_no_java_is_a_usage_error_of_one_line_with_a_remedy(tmp_path: Path) -> None:
    fake_java(tmp_path / "trimmed", "21", complete=False)
    with pytest.raises(UsageError) as caught:
        find_java_home(environment(home=tmp_path / "gone", path=tmp_path / "trimmed"), packaged=lambda: None)
    assert set(caught.value.rejected) == {"JAVA_HOME", "PATH", PACKAGE}
    assert SPARK_MODULE in caught.value.rejected["PATH"]
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_empty_environment_names_all_places() -> None:
    with pytest.raises(UsageError) as caught:
        find_java_home({}, packaged=lambda: None)
    assert set(caught.value.rejected) == {"JAVA_HOME", "PATH", PACKAGE}
