"""How requests to S3 are signed (Signature Version 4), and where their credentials come from. No network.

Only what ``pyarrow.fs`` cannot ask for goes this way (`afspark.store.s3_store`).
"""

from __future__ import annotations

import configparser
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "-_.~"


@dataclass(frozen=True)
class Credentials:
    """An access key; ``token`` belongs to those that are valid for a while."""

    key: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.key!r})"


@dataclass(frozen=True)
class S3Place:
    """Where a bucket is: ``path`` begins the path of every request, which is empty if the host names the bucket."""

    secure: bool
    host: str
    path: str

    @classmethod
    def of(cls, uri: str, region: str, environment: Mapping[str, str] = os.environ) -> S3Place:
        """The bucket of an address, at the endpoint that it or the environment names, else at Amazon's.

        >>> S3Place.of("s3://box/x?endpoint_override=localhost:8333&scheme=http", "us-east-1", {})
        S3Place(secure=False, host='localhost:8333', path='/box')
        >>> S3Place.of("s3://box/x", "eu-west-1", {})
        S3Place(secure=True, host='box.s3.eu-west-1.amazonaws.com', path='')
        """
        parts = urlsplit(uri)
        given = dict(parse_qsl(parts.query))
        bucket = parts.netloc.rpartition("@")[2]
        named = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
        endpoint = given.get("endpoint_override") or named
        scheme, mark, rest = endpoint.partition("://")
        secure = (scheme if mark else given.get("scheme", "https")) == "https"
        host = (rest if mark else endpoint).rstrip("/")
        if host and given.get("force_virtual_addressing", "").lower() in ("true", "1"):
            return cls(secure, f"{bucket}.{host}", "")
        if host:
            return cls(secure, host, f"/{bucket}")
        amazon = f"s3.{region}.amazonaws.com"
        return cls(secure, amazon, f"/{bucket}") if "." in bucket else cls(secure, f"{bucket}.{amazon}", "")


def find_credentials(uri: str, environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """Those in the address, in the environment or in the file of shared credentials; None if there are none.

    Roles of hosts and of pods are not among them: whoever has these is served by ``pyarrow.fs`` alone.

    >>> find_credentials("s3://key:se%2Fcret@box/x", {})
    Credentials('key')
    """
    user, mark, password = urlsplit(uri).netloc.rpartition("@")[0].partition(":")
    if mark:
        return Credentials(unquote(user), unquote(password))
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        return Credentials(key, secret, environment.get("AWS_SESSION_TOKEN", ""))
    shared = environment.get("AWS_SHARED_CREDENTIALS_FILE") or str(Path("~/.aws/credentials").expanduser())
    found = configparser.RawConfigParser()
    try:
        found.read(shared)
    except (OSError, configparser.Error, UnicodeDecodeError):
        return None
    profile = environment.get("AWS_PROFILE", "default")
    if not found.has_option(profile, "aws_access_key_id") or not found.has_option(profile, "aws_secret_access_key"):
        return None
    return Credentials(
        found.get(profile, "aws_access_key_id"),
        found.get(profile, "aws_secret_access_key"),
        found.get(profile, "aws_session_token", fallback=""),
    )


def signed(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    credentials: Credentials,
    region: str,
    now: datetime | None = None,
) -> dict[str, str]:
    """The headers of a request with its signature. ``path`` is quoted, ``headers`` has the host."""
    moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    sent = {name.lower(): value.strip() for name, value in headers.items()}
    sent |= {"x-amz-date": moment, "x-amz-content-sha256": digest}
    if credentials.token:
        sent["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(sent))
    lines = "".join(f"{name}:{sent[name]}\n" for name in sorted(sent))
    request = "\n".join([method, path, query, lines, names, digest])
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{credentials.secret}".encode()
    for part in (moment[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    sent["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return sent


def quoted(name: str) -> str:
    """An object's name as it stands in a request.

    >>> quoted("a b/c=%")
    'a%20b/c%3D%25'
    """
    return quote(name, safe=f"/{_UNRESERVED}")
