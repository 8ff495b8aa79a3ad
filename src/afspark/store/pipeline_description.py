"""A pipeline as its checkpoint describes it: what a start with another one is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from afspark.store.jsontext import from_json, to_json

Fields = Mapping[str, Any]
"""Plain values by name, as JSON has them."""


@dataclass(frozen=True, kw_only=True)
class OperatorDescription:
    """One operator. ``id`` is what the checkpoint knows it by, ``name`` what the user called it."""

    id: str
    name: str
    class_name: str
    #: what each state looks like, by name
    states: Mapping[str, Fields]
    #: what else its state depends on, as the operator itself says
    parameters: Fields = field(default_factory=dict)
    #: sources and ids of operators
    inputs: tuple[str, ...] = ("",)
    workers: int = 1
    keyed: bool = False
    #: the columns that say whose an item is; None: it is not keyed, or the checkpoint does not say
    key: tuple[str, ...] | None = None
    window: Fields | None = None
    #: ids of operators
    feeds_back: tuple[str, ...] = ()
    #: None: the checkpoint does not say
    tolerance: Fields | None = None

    @classmethod
    def from_json(cls, name: str, found: Fields) -> OperatorDescription:
        """An operator of the settings of a pipeline; what an earlier release has not written is not known."""
        own = dict(found.get("operator", {}))
        return cls(
            id=name,
            name=found.get("name", name),
            class_name=str(own.pop("operator", "")),
            states=own.pop("states", {}),
            parameters=own,
            inputs=tuple(found.get("inputs", ())),
            workers=found.get("workers", 1),
            keyed=found.get("keyed", False),
            key=tuple(found["key"]) if "key" in found else None,
            window=found.get("window"),
            feeds_back=tuple(found.get("feeds_back", ())),
            tolerance=found.get("tolerance"),
        )


@dataclass(frozen=True, kw_only=True)
class PipelineDescription:
    """Sources by name and operators by id. ``recorded``: whether batches have commit records."""

    sources: Mapping[str, Fields]
    operators: Mapping[str, OperatorDescription]
    recorded: bool = True

    @classmethod
    def from_json(cls, settings: Fields) -> PipelineDescription:
        """The pipeline with these settings, which a checkpoint has or which are about to be written to one."""
        # As they come back from a store: lists instead of tuples.
        plain = from_json(to_json(dict(settings)))
        operators = plain.get("operators", {})
        return cls(
            # A pushed source keeps the lanes that it began with, whatever the pipeline says.
            sources={name: _without_lanes(source) for name, source in plain.get("sources", {}).items()},
            operators={name: OperatorDescription.from_json(name, one) for name, one in operators.items()},
            recorded=plain.get("recorded", True),
        )

    @property
    def is_pushed(self) -> bool:
        """Whether producers push items of a source."""
        return any(source.get("kind") == "pushed" for source in self.sources.values())


def _without_lanes(source: Fields) -> Fields:
    return {name: value for name, value in source.items() if name != "lanes"}
