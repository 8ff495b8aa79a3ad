"""Nothing but loopback without token and TLS; tokens and certificates come from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import flight

from afspark.errors import UsageError
from afspark.push.wire.security import Access, CallerCheck, Role, Security, check_exposure, read_token

TOKEN = "0123456789abcdef0123"
SECRET = "fedcba9876543210"


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(f" {TOKEN}\n")
    return str(path)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    check_exposure(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
@pytest.mark.parametrize(
    "security", [None, Security(), Security(token_file="t"), Security(cert_file="c", key_file="k")], ids=repr
)
def test_other_hosts_are_not_let_in_without_token_and_tls(host: str, security: Security | None) -> None:
    with pytest.raises(UsageError) as caught:
        check_exposure(host, security)
    assert caught.value.host == host
    check_exposure(host, Security(token_file="t", cert_file="c", key_file="k"))


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(UsageError):
        Security(cert_file="c")


def test_a_token_is_read_without_white_space(token_file: str) -> None:
    assert read_token(token_file) == TOKEN.encode()
    assert Access(token_file=token_file).headers() == [(b"authorization", b"Bearer " + TOKEN.encode())]
    assert Access().headers() == []
    assert Access(token_file=token_file, worker_secret=SECRET).headers() == [
        (b"authorization", b"Bearer " + SECRET.encode())
    ]


@pytest.mark.parametrize("content", [b"", b"short", b"with a space inside it", b"\xff" * 20])
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError):
        read_token(str(tmp_path / "token"))


def test_missing_files_are_named(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    for use in (
        lambda: Security(token_file=absent).middleware(),
        lambda: Security(cert_file=absent, key_file=absent).certificates(),
        lambda: Access(root_certs_file=absent).connect("grpc+tls://127.0.0.1:1"),
    ):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.path == absent


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": []},
        {"authorization": ["Bearer wrong"]},
        {"authorization": [TOKEN]},
        {"authorization": [f"Bearer {TOKEN}x"]},
        {"authorization": ["Bearer \u00e9"]},
        {"other": [f"Bearer {TOKEN}"]},
    ],
    ids=str,
)
def test_calls_without_the_token_are_turned_away(headers: dict[str, list[str]]) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError):
        CallerCheck(TOKEN.encode(), SECRET.encode()).start_call(None, headers)
    # Where producers need no token, nobody becomes a worker that way.
    assert CallerCheck(None, SECRET.encode()).start_call(None, headers).role is Role.PRODUCER


@pytest.mark.parametrize(("credential", "role"), [(TOKEN, Role.PRODUCER), (SECRET, Role.WORKER)])
def test_the_credential_tells_who_calls(credential: str, role: Role) -> None:
    check = CallerCheck(TOKEN.encode(), SECRET.encode())
    for value in (f"Bearer {credential}", f"Bearer {credential}".encode()):
        assert check.start_call(None, {"Authorization": [value]}).role is role
