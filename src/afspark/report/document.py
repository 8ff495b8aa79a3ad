"""A finished run as one JSON document."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from afspark._version import __version__


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything that is told about a run. ``seconds`` run from the first batch's start to the stream's end.

    ``promised`` is the bound that held before the run began (None: none), ``realised`` the bound after the
    failures that happened. ``observed`` and ``accuracy`` exist if the input was counted exactly afterwards.
    """

    algorithm: str
    settings: Mapping[str, Any]
    items: int
    bytes: int
    seconds: float
    batches: int
    #: objects, cells and bytes written
    backups: Mapping[str, int]
    #: resident cells and bytes at the end
    state: Mapping[str, int]
    #: name of the state that thresholds are reported for
    main_state: str
    ledger: Sequence[Mapping[str, Any]]
    promised: float | None
    realised: Mapping[str, float]
    #: the largest results, as rows
    top: Sequence[Mapping[str, Any]] = ()
    results: int = 0
    observed: Mapping[str, float] | None = None
    accuracy: Mapping[str, float] | None = None
    verify_seconds: float | None = None
    #: rows that were left out because of missing or unusable values; None: nobody counted
    skipped: int | None = None
    #: items that came too late for their window; None: there are no windows
    late: int | None = None
    #: of a learner: items, prediction rate, base rate, log loss, rows skipped
    learned: Mapping[str, Any] | None = None
    #: of workers that train one model: norms, losses, regret and its bound (`Query.convergence`)
    convergence: Mapping[str, Any] | None = None
    #: a cluster on this machine that was started for the run: hosts, slots, away seconds, failures wanted, and kills
    hosts: Mapping[str, Any] | None = None
    #: requests to the store, by kind
    requests: Mapping[str, int] = field(default_factory=dict)
    #: whether batches of an earlier run with the same checkpoint went before
    resumed: bool = False
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)

    @property
    def items_per_second(self) -> float:
        return self.items / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_per_second(self) -> float:
        """The throughput in units of 10^6 bytes."""
        return self.bytes / 1e6 / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what is infinite or undefined becomes null."""
        document = {
            "version": __version__,
            "algorithm": self.algorithm,
            "settings": dict(self.settings),
            "input": {"items": self.items, "bytes": self.bytes},
            "seconds": self.seconds,
            "throughput": {"items_per_second": self.items_per_second, "mb_per_second": self.mb_per_second},
            "batches": self.batches,
            "resumed": self.resumed,
            "backups": {"state": dict(self.backups)},
            "requests": dict(self.requests),
            "state": dict(self.state),
            "ledger": [self._loss(entry) for entry in self.ledger],
            "bound": {
                "state": self.promised,
                "realised": self.realised.get(self.main_state, 0.0),
                "realised_by_state": dict(self.realised),
            },
            "observed": dict(self.observed) if self.observed is not None else None,
            "accuracy": dict(self.accuracy) if self.accuracy is not None else None,
            "verify_seconds": self.verify_seconds,
            "skipped": self.skipped,
            "late": self.late,
            "learned": dict(self.learned) if self.learned is not None else None,
            "convergence": dict(self.convergence) if self.convergence is not None else None,
            "hosts": dict(self.hosts) if self.hosts is not None else None,
            "results": {"count": self.results, "top": [dict(row) for row in self.top]},
            "environment": {
                "python": platform.python_version(),
                "spark": version("pyspark"),
                "pyarrow": version("pyarrow"),
                "cores": self.cores,
                "platform": platform.platform(),
            },
        }
        plain: dict[str, Any] = plain_json(document)
        return plain

    def _loss(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        thetas = dict(entry["theta"])
        return {**entry, "theta": thetas.get(self.main_state), "theta_by_state": thetas}


def plain_json(value: Any) -> Any:
    """The same value with JSON's types only.

    >>> plain_json({"a": (float("inf"), 1.5), "b": b"word"})
    {'a': [None, 1.5], 'b': 'word'}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def save_json(path: str | Path, document: Any) -> None:
    """Writes ``document`` to a file that is either complete or as it was before; its folder is made if need be."""
    target = Path(path)
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    if target.exists() and not target.is_file():  # a pipe or a terminal
        target.write_text(text + "\n", encoding="utf-8")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(target)
