"""Requests to S3 are signed as Amazon's manual shows, with the credentials that other programs would use."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from afspark.store.s3_signing import Credentials, S3Place, find_credentials, quoted, signed

EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


def test_the_example_of_the_manual() -> None:
    headers = {
        "Host": "examplebucket.s3.amazonaws.com",
        "Date": "Fri, 24 May 2013 00:00:00 GMT",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
    }
    sent = signed(
        "PUT",
        f"/{quoted('test$file.text')}",
        "",
        headers,
        b"Welcome to Amazon S3.",
        credentials=EXAMPLE,
        region="us-east-1",
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert sent["authorization"].endswith(
        "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, "
        "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    )


def test_where_credentials_come_from(tmp_path: Path) -> None:
    shared = tmp_path / "credentials"
    shared.write_text(
        "[default]\naws_access_key_id=filed\naws_secret_access_key=s\n"
        "[other]\naws_access_key_id=profiled\naws_secret_access_key=s\naws_session_token=t\n[half]\n"
    )
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(shared)}
    keys = {"AWS_ACCESS_KEY_ID": "named", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    assert find_credentials("s3://given:secret@box/x", {**files, **keys}) == Credentials("given", "secret")
    assert find_credentials("s3://box/x", {**files, **keys}) == Credentials("named", "s", "t")
    assert find_credentials("s3://box/x", files) == Credentials("filed", "s")
    assert find_credentials("s3://box/x", {**files, "AWS_PROFILE": "other"}) == Credentials("profiled", "s", "t")
    assert find_credentials("s3://box/x", {**files, "AWS_PROFILE": "half"}) is None
    assert find_credentials("s3://box/x", {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}) is None
    assert "secret" not in repr(find_credentials("s3://given:secret@box/x", {}))


@pytest.mark.parametrize(
    ("uri", "environment", "place"),
    [
        ("s3://box/x", {}, S3Place(True, "box.s3.eu-west-1.amazonaws.com", "")),
        ("s3://my.box/x", {}, S3Place(True, "s3.eu-west-1.amazonaws.com", "/my.box")),
        ("s3://k:s@box/x?endpoint_override=host:1", {}, S3Place(True, "host:1", "/box")),
        ("s3://box/x?endpoint_override=http://host:1", {}, S3Place(False, "host:1", "/box")),
        ("s3://box/x", {"AWS_ENDPOINT_URL": "http://host:1/"}, S3Place(False, "host:1", "/box")),
        (
            "s3://box/x?force_virtual_addressing=true",
            {"AWS_ENDPOINT_URL_S3": "https://host", "AWS_ENDPOINT_URL": "http://other"},
            S3Place(True, "box.host", ""),
        ),
    ],
)
def test_where_a_bucket_is(uri: str, environment: dict[str, str], place: S3Place) -> None:
    assert S3Place.of(uri, "eu-west-1", environment) == place
