"""What a user's function is, so that a study does not go on from results that another one gave."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any


def function_digest(function: Callable[..., Any]) -> str:
    """A digest of a function: its file, its code, and the plain values that it has got with it.

    It is the same in every process; modules that the file imports are not in it.

    >>> def above(limit): return lambda value: value > limit
    >>> function_digest(above(3)) == function_digest(above(3)), function_digest(above(3)) == function_digest(above(4))
    (True, False)
    """
    whole = hashlib.blake2b(source_of(function), digest_size=8)
    whole.update(_facts(function, set()).encode())
    return whole.hexdigest()


def source_of(function: Callable[..., Any]) -> bytes:
    """The file in which a function is, or the class of an object that is called; nothing if there is none."""
    while isinstance(function, partial):
        function = function.func
    is_code = inspect.isfunction(function) or inspect.ismethod(function) or inspect.isclass(function)
    try:
        path = inspect.getsourcefile(function if is_code else type(function))
    except (TypeError, OSError):  # built into Python
        return b""
    return Path(path).read_bytes() if path and Path(path).is_file() else b""


def _facts(value: object, seen: set[int]) -> str:
    """A value as text that has no addresses in it, and no order that differs between processes."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if id(value) in seen:
        return "..."
    seen = {*seen, id(value)}
    if isinstance(value, tuple | list):
        return str([_facts(one, seen) for one in value])
    if isinstance(value, set | frozenset):
        return str(sorted(_facts(one, seen) for one in value))
    if isinstance(value, dict):
        return str(sorted((_facts(key, seen), _facts(one, seen)) for key, one in value.items()))
    if isinstance(value, CodeType):
        return str([value.co_code.hex(), value.co_names, _facts(value.co_consts, seen)])
    if inspect.ismodule(value):
        return value.__name__
    if isinstance(value, partial):
        return _facts([value.func, value.args, value.keywords], seen)
    if inspect.ismethod(value):
        return _facts([value.__func__, value.__self__], seen)
    if inspect.isfunction(value):
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        return _facts([value.__code__, value.__defaults__, value.__kwdefaults__, closed], seen)
    named = value if isinstance(value, type) else type(value)
    return f"{named.__module__}.{named.__qualname__}" + ("" if value is named else _facts(_fields(value), seen))


def _fields(value: object) -> dict[str, Any]:
    """What an object has, with the code that calls it."""
    called = type(value).__call__ if callable(value) and inspect.isfunction(type(value).__call__) else None
    return {**getattr(value, "__dict__", {}), "()": called}
