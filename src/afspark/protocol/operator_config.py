"""What is the same for all workers of an operator while a query runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afspark.model.windows import Window
from afspark.protocol.bad_items import BadRules
from afspark.protocol.fault_plan import FaultPlan
from afspark.protocol.punctuation_plan import PunctuationPlan
from afspark.store import Store


@dataclass(frozen=True, kw_only=True)
class OperatorConfig:
    """What is the same for all workers of one operator and all batches of one run of a query."""

    query_id: str
    fingerprint: str
    operator_name: str
    workers: int
    checkpoint: str
    store: Store
    epoch: str
    segments: str | None
    #: emit the rows changed by a batch
    emit: bool
    faults: FaultPlan
    window: Window | None = None
    #: items come to the worker that owns their key
    keyed: bool = False
    #: what the user calls operators whose id is another one, by id
    titles: Mapping[str, str] = field(default_factory=dict)
    #: what the user calls inputs that come through an internal node
    input_names: Mapping[str, str] = field(default_factory=dict)
    #: the place of each input among all; none: by their names
    input_order: Mapping[str, int] = field(default_factory=dict)
    #: the operators that what it sends goes to; none: nothing is kept
    successors: tuple[str, ...] = ()
    #: a sink takes what it sends
    appends: bool = False
    #: operators upstream that it may send feedback to
    feeds_back: tuple[str, ...] = ()
    #: items come from receivers, so that a batch cannot be applied anew
    pushed: bool = False
    #: receivers keep the items until a durable record covers them, so that it can be applied anew all the same
    retained: bool = False
    #: the tolerance lets no failure change anything, so that none has to be counted
    exact: bool = False
    #: how many of them one worker can lose to all failures together
    losable_items: float = 0.0
    bad: BadRules = field(default_factory=BadRules)
    #: the operator as it was before it met any item, pickled; b"": whatever it raises is raised
    pristine: bytes = b""

    @property
    def title(self) -> str:
        """What the user calls the operator."""
        return self.titles.get(self.operator_name, self.operator_name)

    @property
    def stepped(self) -> bool:
        """Whether parts of a batch become final before it ends; what others will read of it is complete when it is."""
        return self.could_step and not self.retained

    @property
    def could_step(self) -> bool:
        """Whether parts of a batch would become final before it ends under some tolerance."""
        return self.pushed and not (self.emit or self.appends or self.successors or self.feeds_back)

    def in_steps(self, punctuation_plan: PunctuationPlan) -> bool:
        """Whether parts of a batch with that plan become final before it ends.

        Not where windows close in it: what they show is what there was before its items, which a state that is
        restored inside the batch does not have any more.
        """
        return self.stepped and not punctuation_plan
