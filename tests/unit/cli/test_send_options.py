"""The command line of ``afspark send``."""

from __future__ import annotations

import pytest

from afspark.cli.options import parse
from afspark.cli.send_options import SendOptions
from afspark.errors import UsageError


def test_defaults() -> None:
    assert parse(["send", "localhost:7000", "a.csv"]) == SendOptions(address="localhost:7000", files=("a.csv",))


def test_everything_given() -> None:
    line = (
        "send h:1 a b --format jsonl --name me --rate 1e3 --batch-rows 10 --unacked 0 --token-file t --tls-ca c "
        "--limit 5 --end --on-bad stop --no-header --give-up 2 --punctuate-column t --punctuate-every 60 --quiet"
    )
    assert parse(line.split()) == SendOptions(
        address="h:1",
        files=("a", "b"),
        format="jsonl",
        name="me",
        rate=1000,
        batch_rows=10,
        unacked=0,
        token_file="t",
        tls_ca="c",
        limit=5,
        end=True,
        on_bad="stop",
        header=False,
        give_up=2,
        punctuate_column="t",
        punctuate_every=60,
        quiet=True,
    )


def test_files_may_stand_behind_options() -> None:
    given = parse(["send", "h:1", "--quiet", "a.csv", "--end", "b.csv", "-"])
    assert given == SendOptions(address="h:1", files=("a.csv", "b.csv", "-"), quiet=True, end=True)


def test_listening() -> None:
    assert parse(["send", "h:1", "--listen-udp", "[::1]:514"]) == SendOptions(address="h:1", listen_udp=("::1", 514))
    given = parse(["send", "[::1]:7000", "--listen-udp", "udp://[::]:2055", "--format", "netflow"])
    assert given == SendOptions(address="[::1]:7000", listen_udp=("::", 2055), format="netflow")
    assert parse(["send", "h:1", "--listen-tcp", "tcp://localhost:0"]).listen_tcp == ("localhost", 0)


@pytest.mark.parametrize(
    "line",
    [
        "send",
        "send h:1",
        "send h:1 a.csv --listen-udp h:1",
        "send h:1 --listen-udp h:1 --listen-tcp h:1",
        "send h:1 --listen-udp h",
        "send h:1 --listen-udp ::1:514",
        "send h:1 --listen-udp [::x]:514",
        "send h:1 --listen-udp [h]:514",
        "send h:1 --listen-udp h:65536",
        "send h:1 --listen-udp tcp://h:1",
        "send h:1 --listen-tcp h:1 --format netflow",
        "send h:1 --listen-udp h:1 --format parquet",
        "send h:1 a.csv --format syslog",
        "send h:1 a.csv --colour red",
        "send h:1 a.csv --rate 0",
        "send h:1 a.csv --unacked -1",
        "send h:1 a.csv --punctuate-column t",
    ],
)
def test_what_makes_no_sense(line: str) -> None:
    with pytest.raises(UsageError):
        parse(line.split())
