"""A certificate that workers would not accept stops the start, with one line that says why."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from afspark.errors import UsageError
from afspark.push.consumer.certificates import check_certificate, check_reachable
from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from afspark.push.receiver.receiver_process import ReceiverPlan, ReceiverProcess
from afspark.push.wire.security import Access, Security
from tests.property.store.faulty_store import MemoryStore
from tests.unit.push.certificates import make_certificate
from tests.unit.push.flightclient import SCHEMA


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def valid(folder: Path) -> Security:
    cert, key = make_certificate(folder, "valid")
    return Security(cert_file=cert, key_file=key)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "[::1]"])
def test_a_valid_certificate_passes_in_silence(valid: Security, host: str, caplog: pytest.LogCaptureFixture) -> None:
    check_certificate(valid, host)
    check_certificate(None, host)
    check_certificate(Security(), host)
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("expired", {"begins": -30.0, "ends": -1.0}, "expired"),
        ("future", {"begins": 1.0, "ends": 30.0}, "not yet valid"),
        ("elsewhere", {"names": "DNS:example.org,IP:10.1.2.3"}, "not valid for"),
    ],
    ids=["expired", "not yet valid", "another host"],
)
def test_what_workers_would_refuse_is_refused_at_the_start(
    folder: Path, name: str, options: dict[str, object], reason: str
) -> None:
    cert, key = make_certificate(folder, name, **options)  # type: ignore[arg-type]
    security = Security(cert_file=cert, key_file=key)
    plan = ReceiverPlan(
        number=0,
        lanes=(0,),
        schema=SCHEMA,
        host="127.0.0.1",
        port=0,
        items=0,
        seconds=None,
        unacked=1,
        security=security,
    )
    process = ReceiverProcess(plan, MemoryStore())
    with pytest.raises(UsageError) as caught:
        process.open()
    assert reason in caught.value.reason and caught.value.path == cert
    assert "\n" not in str(caught.value)
    assert process.announced is None


def test_a_key_of_another_certificate_is_refused(folder: Path, valid: Security) -> None:
    _, key = make_certificate(folder, "other")
    with pytest.raises(UsageError) as caught:
        check_certificate(replace(valid, key_file=key), "localhost")
    assert "KEY_VALUES_MISMATCH" in caught.value.reason


@pytest.mark.parametrize("content", [None, "", "no certificate\n"])
def test_what_is_no_certificate_is_refused(folder: Path, valid: Security, content: str | None) -> None:
    path = folder / f"content-{content!r}".replace("/", "").replace("\\", "")
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError) as caught:
        check_certificate(replace(valid, cert_file=str(path)), "localhost")
    assert "\n" not in str(caught.value)


def test_one_that_ends_soon_is_worth_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = make_certificate(folder, "soon", ends=3.0)
    check_certificate(Security(cert_file=cert, key_file=key), "localhost")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and cert in record.getMessage()


def test_workers_that_trust_something_else_are_noticed_by_a_real_call(folder: Path, valid: Security) -> None:
    receiver = Receiver(ReceiverConfig(schema=SCHEMA, lanes=(0,), security=valid))
    address = receiver.start()
    try:
        check_reachable(address, 0, receiver.worker_access)
        other, _ = make_certificate(folder, "unrelated")
        for access in (replace(receiver.worker_access, root_certs_file=other), Access(root_certs_file=valid.cert_file)):
            with pytest.raises(UsageError) as caught:
                check_reachable(address, 0, access)
            assert caught.value.address == address
    finally:
        receiver.stop()
