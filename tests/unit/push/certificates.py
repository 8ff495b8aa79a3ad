"""Certificates for tests, made with openssl: valid or not, for this host or another."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = "DNS:localhost,IP:127.0.0.1,IP:0:0:0:0:0:0:0:1"

_AUTHORITY = """
[ca]
default_ca = own
[own]
database = index.txt
rand_serial = yes
new_certs_dir = .
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
"""


def make_certificate(
    folder: Path, name: str, *, names: str = HERE, begins: float = -1.0, ends: float = 100.0
) -> tuple[str, str]:
    """Files of a certificate that signs itself and of its key; it is valid from and to so many days from now."""
    (folder / "index.txt").touch()
    (folder / "authority").write_text(_AUTHORITY)
    (folder / "names").write_text(f"subjectAltName={names}")
    key, request, certificate = (f"{name}-{kind}.pem" for kind in ("key", "request", "cert"))
    _openssl(folder, "req -new -newkey rsa:2048 -nodes -subj /CN=localhost", "-keyout", key, "-out", request)
    now = datetime.now(UTC)
    dates = [f"{now + timedelta(days=days):%Y%m%d%H%M%SZ}" for days in (begins, ends)]
    _openssl(
        folder,
        "ca -batch -notext -config authority -selfsign -extfile names",
        *("-keyfile", key, "-in", request, "-out", certificate, "-startdate", dates[0], "-enddate", dates[1]),
    )
    return str(folder / certificate), str(folder / key)


def _openssl(folder: Path, command: str, *more: str) -> None:
    subprocess.run(["openssl", *command.split(), *more], check=True, capture_output=True, cwd=folder)
