"""What every store must do, as checks that can be run on any implementation.

Each check takes an empty store and raises AssertionError where the store breaks the contract::

    for check in CHECKS:
        check(make_empty_store())
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from afspark.errors import ObjectMissing, UsageError
from afspark.store.base import Store

Check = Callable[[Store], None]


def _expect(holds: bool, what: str) -> None:
    # Not an assert statement: the checks must also work under python -O.
    if not holds:
        raise AssertionError(what)


def returns_what_was_put(store: Store) -> None:
    for name, data in {"one": b"\0\1\2", "empty": b"", "deep/er/still": b"x" * 3_000_000}.items():
        store.put(name, data)
        _expect(store.get(name) == data, f"{name} came back changed")
        _expect(store.has(name), f"{name} was put but is said not to exist")


def replaces_an_object_put_again(store: Store) -> None:
    store.put("a/b", b"a long first content")
    store.put("a/b", b"short")
    _expect(store.get("a/b") == b"short", "the second content did not replace the first")
    _expect(store.list("") == ["a/b"], "an object put twice must be listed once")


def names_a_missing_object(store: Store) -> None:
    store.put("folder/object", b"x")
    for name in ("absent", "folder/absent", "folder", "folder/object/below"):
        try:
            store.get(name)
        except ObjectMissing as error:
            _expect(error.name == name, f"the error for {name} names {error.name}")
            _expect(not store.has(name), f"{name} does not exist but is said to")
        else:
            _expect(False, f"{name} does not exist but was read")


def lists_folders_in_order(store: Store) -> None:
    for name in ("a/c", "a/b/z", "ab", "a/b/y", "a/bc", "b"):
        store.put(name, b"x")
    _expect(store.list("") == ["a/b/y", "a/b/z", "a/bc", "a/c", "ab", "b"], "the root is not listed in order")
    _expect(store.list("a/b") == ["a/b/y", "a/b/z"], "a prefix is a folder, not the beginning of a name")
    _expect(store.list("a/b/") == store.list("a/b"), "a trailing slash must not matter")
    _expect(store.list("absent") == [], "a missing folder is empty")
    _expect(store.list("ab") == [], "an object is not a folder")


def deletes_and_ignores_the_missing(store: Store) -> None:
    for name in ("a/one", "a/two", "three"):
        store.put(name, b"x")
    store.delete(iter(["a/one", "absent", "no/folder", "three"]))
    store.delete([])
    _expect(store.list("") == ["a/two"], "exactly the named objects must go")
    store.put("a/one", b"again")
    _expect(store.get("a/one") == b"again", "a deleted name must be usable again")


def refuses_names_outside(store: Store) -> None:
    for name in ("", "/absolute", "a//b", "../up", "a/../b", "a/.", "a/"):
        for use in (lambda: store.put(name, b"x"), lambda: store.get(name), lambda: store.delete([name])):  # noqa: B023
            try:
                use()
            except UsageError:
                continue
            _expect(False, f"the name {name!r} was accepted")
    _expect(store.list("") == [], "a refused name left something behind")


def serves_threads(store: Store) -> None:
    names = [f"folder-{number % 3}/sub-{number % 5}/{number:03d}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, name.encode()), names))
        found = list(pool.map(store.get, names))
    _expect(found == [name.encode() for name in names], "concurrent puts got mixed up")
    _expect(store.list("") == sorted(names), "concurrent puts were lost")


def probes_without_traces(store: Store) -> None:
    store.put("kept", b"x")
    store.check_writable()
    _expect(store.list("") == ["kept"], "check_writable left something behind")


def shows_folders_as_stores(store: Store) -> None:
    inner = store.below("a/b")
    inner.put("c", b"x")
    _expect(store.get("a/b/c") == b"x" and inner.get("c") == b"x", "the folder does not hold what was put there")
    _expect(inner.list("") == ["c"] and store.list("") == ["a/b/c"], "names are not relative to the folder")
    inner.delete(["c"])
    _expect(store.list("") == [], "delete did not reach the folder")


def survives_pickling(store: Store) -> None:
    store.put("before", b"x")
    copy = pickle.loads(pickle.dumps(store))
    copy.put("after", b"y")
    _expect(copy.get("before") == b"x" and store.get("after") == b"y", "the copy is another store")


CHECKS: tuple[Check, ...] = (
    returns_what_was_put,
    replaces_an_object_put_again,
    names_a_missing_object,
    lists_folders_in_order,
    deletes_and_ignores_the_missing,
    refuses_names_outside,
    serves_threads,
    probes_without_traces,
    shows_folders_as_stores,
    survives_pickling,
)
