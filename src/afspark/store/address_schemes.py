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
#: Parameters of an address that say where a place is, and hold no keys.
_TELLING = ("endpoint_override", "scheme", "region")
#: Schemes whose addresses have no port.
_BUCKETS = ("s3", "s3a", "s3n", "gs", "gcs")
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
        remedy = _INSTEAD.get(scheme) or f"{guess}Give a path, or an address with {known}."
        raise UsageError(
            f"No store has addresses of the kind {scheme}:.", remedy=remedy, scheme=scheme, path=redact(address)
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
    return _secret(address).sub("//", place)


def without_keys(address: str) -> str:
    """An address by which a place can be remembered: with those parameters that say where it is.

    >>> without_keys("s3://key:secret@bucket/x?scheme=http&session_token=t&endpoint_override=localhost:8333")
    's3://bucket/x?scheme=http&endpoint_override=localhost:8333'
    """
    telling = [one for one in _parameters(address) if one.partition("=")[0] in _TELLING]
    return "?".join([redact(address), *(["&".join(telling)] if telling else [])])


def with_keys_of(address: str, place: str) -> str:
    """A place that was remembered, as whoever has the keys in ``address`` can ask for it.

    >>> with_keys_of("s3://key:secret@bucket/y?session_token=t&scheme=http", "s3://bucket/x?scheme=https")
    's3://key:secret@bucket/x?scheme=https&session_token=t'
    """
    if scheme_of(address) != scheme_of(place) or not scheme_of(place):
        return place
    found = _secret(address).search(address.partition("?")[0])
    keys = [one for one in _parameters(address) if one.partition("=")[0] not in _TELLING]
    given = "&".join([*_parameters(place), *keys])
    bare = place.partition("?")[0]
    return (bare.replace("//", found[0], 1) if found else bare) + (f"?{given}" if given else "")


def _parameters(address: str) -> list[str]:
    given = address.partition("?")[2] if scheme_of(address) else ""
    return given.split("&") if given else []


def _secret(address: str) -> re.Pattern[str]:
    """Where users and passwords stand in an address."""
    scheme = scheme_of(address)
    # Where Azure's container stands others have a user; a password follows a colon.
    secret = r"//[^/@]*:[^/@]*@" if scheme in ("abfs", "abfss") else r"//[^/@]*@"
    if scheme in _BUCKETS:
        # Of Amazon's keys many have a slash, which nobody can read there as such, and which is not to be shown either.
        secret = rf"//[^/@:]*:[^@]*@|{secret}"
    return re.compile(secret)
