"""The backup store: immutable objects, commit records, the loss ledger, and recovery from them."""

from afspark.store.commits import CommitRecord, StreamEnd
from afspark.store.compaction import Chain, CompactionRule, chain_to_restore, extend
from afspark.store.counted_failure import CountedFailure
from afspark.store.filesystem import Store, open_store
from afspark.store.format import FORMAT_VERSION, Sealed, checksum_of, seal, unseal
from afspark.store.identity import QueryIdentity, claim, identify
from afspark.store.ledger import Ledger, LedgerEntry, Loss, Recovery
from afspark.store.naming import object_name
from afspark.store.operator_record import OperatorCounters, OperatorRecord, Rescaled
from afspark.store.reading import Damage
from afspark.store.records import RecordLog
from afspark.store.recovery import LoadedChain, load_chain
from afspark.store.throttle import Throttle, ThrottledStore
from afspark.store.worker_record import ObjectRef, WorkerRecord

__all__ = [
    "FORMAT_VERSION",
    "Chain",
    "CommitRecord",
    "CompactionRule",
    "CountedFailure",
    "Damage",
    "Ledger",
    "LedgerEntry",
    "LoadedChain",
    "Loss",
    "ObjectRef",
    "OperatorCounters",
    "OperatorRecord",
    "QueryIdentity",
    "RecordLog",
    "Recovery",
    "Rescaled",
    "Sealed",
    "Store",
    "StreamEnd",
    "Throttle",
    "ThrottledStore",
    "WorkerRecord",
    "chain_to_restore",
    "checksum_of",
    "claim",
    "extend",
    "identify",
    "load_chain",
    "object_name",
    "open_store",
    "seal",
    "unseal",
]
