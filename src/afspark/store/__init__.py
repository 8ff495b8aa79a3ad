"""The backup store: immutable objects, commit records, the loss ledger, and recovery from them."""

from afspark.store.commits import CommitRecord, ObjectRef, WorkerRecord
from afspark.store.compaction import CompactionRule, extend
from afspark.store.filesystem import Store, open_store
from afspark.store.format import FORMAT_VERSION, Sealed, checksum_of, seal, unseal
from afspark.store.identity import QueryIdentity, claim, identify
from afspark.store.ledger import Ledger, LedgerEntry, Loss, Recovery
from afspark.store.naming import object_name
from afspark.store.reading import Damage
from afspark.store.records import RecordLog
from afspark.store.recovery import LoadedChain, load_chain
from afspark.store.throttle import Throttle, ThrottledStore

__all__ = [
    "FORMAT_VERSION",
    "CommitRecord",
    "CompactionRule",
    "Damage",
    "Ledger",
    "LedgerEntry",
    "LoadedChain",
    "Loss",
    "ObjectRef",
    "QueryIdentity",
    "RecordLog",
    "Recovery",
    "Sealed",
    "Store",
    "Throttle",
    "ThrottledStore",
    "WorkerRecord",
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
