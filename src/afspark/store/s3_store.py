"""The backup store on S3: ``pyarrow.fs``, and two requests that it does not offer.

A put that is refused if there is an object of that name makes claims exact even where listings are late. Many objects
deleted with one request are one request; ``pyarrow.fs`` asks three times for each of them.

Both need credentials that are known here. Without them, or where the server does not know a request, all goes through
``pyarrow.fs``.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import logging
import os
import ssl
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

from afspark.store.base import check_name, one_line
from afspark.store.remote import ArrowStore
from afspark.store.s3_signing import S3Place, find_credentials, quoted, signed

LOG = logging.getLogger("afspark")

_SECONDS = 20.0
_AT_ONCE = 1000
_MADE, _TAKEN = (200, 201, 204), (409, 412)
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class S3Store(ArrowStore):
    """An `ArrowStore` on S3, or on a server that speaks its protocol."""

    #: whether the server has refused a request that ``pyarrow.fs`` does not offer: then it is not asked again
    _plain = False

    def put_new(self, name: str, data: bytes) -> bool | None:
        status, _ = self._request("PUT", check_name(name), "", data, {"If-None-Match": "*"})
        if status in _MADE:
            return True
        if status in _TAKEN:
            return False
        return None

    def delete(self, names: Iterable[str]) -> None:
        wanted = [check_name(name) for name in names]
        for at in range(0, len(wanted), _AT_ONCE):
            part = wanted[at : at + _AT_ONCE]
            if not self._delete_many(part):
                super().delete(part)

    def _delete_many(self, names: Sequence[str]) -> bool:
        _, root = self._locate("")
        below = root.partition("/")[2]
        keys = (f"{below}/{name}" if below else name for name in names)
        listed = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"<Delete><Quiet>true</Quiet>{listed}</Delete>".encode()
        check = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        status, answer = self._request("POST", "", "delete=", body, {"Content-MD5": check})
        return status in _MADE and b"<Error>" not in answer

    def _request(self, method: str, name: str, query: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """The status and the body of an answer; 0 if the server cannot be asked in this way.

        `StoreUnreachable` if nobody answers, or the server is in trouble.
        """
        plain = self._plain or any(os.environ.get(one) for one in _PROXIES)
        credentials = None if plain else find_credentials(self._uri)
        filesystem, target = self._locate(name)
        region = str(getattr(filesystem, "region", "") or "us-east-1")
        if credentials is None:
            return 0, b""
        place = S3Place.of(self._uri, region)
        path = f"{place.path}/{quoted(target.partition('/')[2])}" if name else place.path or "/"
        sent = signed(
            method, path, query, {"host": place.host, **headers}, body, credentials=credentials, region=region
        )
        try:
            status, answer = self._answer(place, method, f"{path}?{query}" if query else path, body, sent)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(one_line(error)) from error
        if status >= 500 and status != 501:
            raise self._unreachable(f"status {status}")
        if status not in (*_MADE, *_TAKEN):
            # It knows no such request, or knows us by other credentials than these.
            self._plain = True
            LOG.info("%s takes no signed %s (status %d): pyarrow.fs alone is used.", self.path, method, status)
        return status, answer

    def _answer(
        self, place: S3Place, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection: Any
        if place.secure:
            given = dict(parse_qsl(urlsplit(self._uri).query))
            context = ssl.create_default_context(
                cafile=given.get("tls_ca_file_path"), capath=given.get("tls_ca_dir_path")
            )
            connection = http.client.HTTPSConnection(place.host, timeout=_SECONDS, context=context)
        else:
            connection = http.client.HTTPConnection(place.host, timeout=_SECONDS)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
