"""Which addresses a store can have, and what pyarrow calls them."""

from __future__ import annotations

import difflib
import re

from afspark.errors import UsageError

#: What users of Spark write -> what ``pyarrow.fs`` knows.
SCHEMES = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "mock": "mock",
}
_INSTEAD = {
    "dbfs": "Name the storage below it (s3://, gs://, abfss://), or its mount as a path: /dbfs/…",
    "wasb": "Use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
    "wasbs": "Use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH.",
}
#: Parameters of an address that make pyarrow ask less: an object of up to 5 MB is one request, not three.
_SPARING = {"s3": {"allow_delayed_open": "true"}}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def scheme_of(address: str) -> str:
    """What stands before ``:/``, in small letters; nothing for a path.

    >>> scheme_of("s3a://bucket/x"), scheme_of("dbfs:/x"), scheme_of("/data/a:b"), scheme_of("c:/x")
    ('s3a', 'dbfs', '', '')
    """
    found = _SCHEME.match(address)
    return found[1].lower() if found else ""


def for_arrow(address: str) -> str:
    """The address with the scheme that pyarrow knows; UsageError with the remedy if there is none.

    >>> for_arrow("s3a://bucket/x"), for_arrow("/data")
    ('s3://bucket/x', '/data')
    """
    scheme = scheme_of(address)
    if not scheme:
        return address
    if scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1, cutoff=0.5)
        guess = f"Did you mean {near[0]}://? " if near else ""
        known = ", ".join(f"{one}://" for one in SCHEMES if one != "mock")
        remedy = _INSTEAD.get(scheme) or f"{guess}A path, or one of {known}."
        raise UsageError(
            f"No store has addresses of the kind {scheme}:/.", remedy=remedy, scheme=scheme, path=redact(address)
        )
    return SCHEMES[scheme] + address[len(scheme) :]


def sparing(address: str) -> str:
    """An address for pyarrow with the parameters that save requests, unless it sets them itself.

    >>> sparing("s3://bucket/x?region=eu-west-1")
    's3://bucket/x?region=eu-west-1&allow_delayed_open=true'
    """
    place, _, given = address.partition("?")
    wanted = _SPARING.get(scheme_of(address), {})
    named = {one.partition("=")[0] for one in given.split("&")}
    added = [f"{name}={value}" for name, value in wanted.items() if name not in named]
    asked = "&".join([given, *added] if given else added)
    return f"{place}?{asked}" if asked else place


def joined(address: str, name: str) -> str:
    """The address of what is below another one; its parameters stay at the end.

    >>> joined("s3://bucket/x/?region=eu-west-1", "y"), joined("/data", "y")
    ('s3://bucket/x/y?region=eu-west-1', '/data/y')
    """
    place, mark, given = address.partition("?") if scheme_of(address) else (address, "", "")
    return f"{place.rstrip('/')}/{name}{mark}{given}"


def redact(address: str) -> str:
    """An address without user, password and parameters, which may hold keys.

    >>> redact("s3://key:secret@bucket/x?region=eu-west-1"), redact("abfss://box@account/x")
    ('s3://bucket/x', 'abfss://box@account/x')
    """
    place = address.partition("?")[0] if scheme_of(address) else address
    # Where Azure's container stands others have a user; a password follows a colon.
    secret = r"//[^/@]*:[^/@]*@" if scheme_of(address) in ("abfs", "abfss") else r"//[^/@]*@"
    return re.sub(secret, "//", place)
