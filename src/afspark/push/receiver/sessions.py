"""Names of sessions and receipts of acknowledgements: made by receivers, and believed by those of the same source only.

Every start of a receiver has a number. A session's name tells in which start the session began, as which one, and
carries a code that nobody else can make. So does the receipt that goes with an acknowledgement: a producer shows it to
a receiver that has taken the place of a dead one, and what was acknowledged and is gone is known exactly. The key to
both is kept in the store, beside the item log.
"""

from __future__ import annotations

import hmac
import itertools
import secrets
from typing import Self

from afspark.errors import CheckpointError, StoreError
from afspark.push.wire.messages import Ends, Receipts, producer_id
from afspark.push.wire.push_errors import UnknownSession, Unproven
from afspark.store import Store, seal, unseal
from afspark.store.claims import ClaimId, Claims

#: folders in the store, whose names are part of its format
_KEY, _STARTS = "session-key", "tenures"
_KEY_BYTES, _CODE_DIGITS, _RECEIPT_DIGITS, _NUMBER_DIGITS = 32, 16, 32, 8


class StartNumber(ClaimId):
    """The number of a start of receivers, of which no two have the same; names of sessions begin with it."""

    BASE = 16


def _starts(store: Store) -> Claims[StartNumber]:
    return Claims(store, _STARTS, StartNumber, who="receivers")


class Sessions:
    """Names sessions and makes receipts. ``start``: the number of this start of a receiver, which no other start of a
    receiver with the same key has.
    """

    def __init__(self, key: bytes, start: int = 0) -> None:
        self._key, self.start = key, start
        self._numbers = itertools.count()

    @classmethod
    def open(cls, store: Store | None) -> Self:
        """The sessions of another start; without a store no later start will believe them."""
        if store is None:
            return cls(secrets.token_bytes(_KEY_BYTES))
        return cls(session_key(store), _starts(store).take(drop_older=True).number)

    def begin(self, producer: str) -> str:
        """The name of a new session. Calls must not overlap."""
        born = f"{self.start:0{_NUMBER_DIGITS}x}{next(self._numbers):0{_NUMBER_DIGITS}x}"
        return born + self._code(_CODE_DIGITS, "session", producer, born)

    def check(self, producer: str, session: str) -> None:
        """`UnknownSession` unless a receiver with this key has named the session, for that producer."""
        born = session[: 2 * _NUMBER_DIGITS]
        if not hmac.compare_digest(session, born + self._code(_CODE_DIGITS, "session", producer, born)):
            raise UnknownSession(
                f"Producer {producer_id(producer, session)} has no session here.",
                remedy="Say hello without a session to begin one: this may be another query than before.",
                producer=producer_id(producer, session),
            )

    def receipt(self, producer: str, lane: int, end: int) -> str:
        """The proof of an acknowledgement: of what a session (by its id) has sent to a lane, up to ``end``."""
        return self._code(_RECEIPT_DIGITS, "receipt", producer, str(lane), str(end))

    def check_receipts(self, producer: str, acked: Ends, receipts: Receipts) -> None:
        """`Unproven` unless each end has its receipt."""
        for lane, end in acked.items():
            if not hmac.compare_digest(receipts.get(lane, ""), self.receipt(producer, lane, end)):
                raise Unproven(
                    f"Producer {producer} says that lane {lane} has acknowledged {end}, and has no receipt for it.",
                    remedy="Send with it the receipt that came with the newest acknowledgement of the lane.",
                    producer=producer,
                    lane=lane,
                    end=end,
                )

    def _code(self, digits: int, *parts: str) -> str:
        # No part has line breaks, so no two messages are the same text.
        return hmac.digest(self._key, "\n".join(parts).encode(), "sha256").hex()[:digits]


def session_key(store: Store) -> bytes:
    """The key of a source, made when it is first asked for: by one process, before others need it."""
    names = store.list(_KEY)
    if not names:
        key = secrets.token_bytes(_KEY_BYTES)
        store.put(f"{_KEY}/{secrets.token_hex(4)}", seal({"kind": _KEY, "key": key.hex()}, {}))
        return key
    try:
        return bytes.fromhex(unseal(store.get(names[0]), names[0]).meta["key"])
    except (StoreError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"The key of producers' sessions, {store.path}/{names[0]}, is damaged.",
            remedy="Restore it, or remove it: producers then begin new sessions, and what they had under way "
            "unacknowledged may be counted twice.",
            path=f"{store.path}/{names[0]}",
        ) from error


def start_and_number(producer: str) -> tuple[int, int] | None:
    """The start of a receiver in which a session began, and its number there; None if no receiver has made the id.

    >>> start_and_number("sensor/0000000a000000070123456789abcdef"), start_and_number("sensor/00112233")
    ((10, 7), None)
    """
    session = producer.rpartition("/")[2]
    if len(session) != 2 * _NUMBER_DIGITS + _CODE_DIGITS:
        return None
    return int(session[:_NUMBER_DIGITS], 16), int(session[_NUMBER_DIGITS : 2 * _NUMBER_DIGITS], 16)
