"""What goes wrong between producers, receivers and workers, and how it travels over Flight."""

from __future__ import annotations

import json

import pyarrow as pa
from pyarrow import flight

from afspark.errors import AfsparkError, from_json
from afspark.push.wire.unreachable import why_unreachable

# An error goes in the headers of an answer. A client refuses those beyond 8 KiB, and would know nothing then.
_DOCUMENT_BYTES, _TEXT_LENGTH = 3000, 400


class PushError(AfsparkError):
    """Base of what goes wrong while items are pushed."""


class WireError(PushError):
    """A message is malformed, too long or of another version. Fields: ``what``."""


class SchemaMismatch(PushError):
    """A producer's schema is not the source's. Fields: ``expected``, ``found``."""


class OutOfOrder(PushError):
    """A batch overlaps or skips numbers of its session. Fields: ``producer``, ``lane``, ``expected``, ``found``."""

    @classmethod
    def of(cls, producer: str, *, lane: int, expected: int, found: int) -> OutOfOrder:
        return cls(
            f"Producer {producer} sent number {found} to lane {lane}, {expected} is expected.",
            remedy="Say hello again, and send every unacknowledged batch again, as it was and in order.",
            producer=producer,
            lane=lane,
            expected=expected,
            found=found,
        )


class LimitExceeded(PushError):
    """A producer asked for more than the receiver allows. Fields: ``limit``, ``allowed``, ``found``."""


class UnsoundBatch(PushError):
    """The buffers of a batch contradict each other. Fields: ``producer``."""


class NotAllowed(PushError):
    """The token is missing or wrong, or it is not one for what was asked."""


class UnknownSession(PushError):
    """No receiver of this source has opened that session. Fields: ``producer``."""


class SessionOver(PushError):
    """The session has ended, or was away for so long that it was forgotten. Fields: ``producer``."""


class Unproven(PushError):
    """A producer says that items were acknowledged, without a receipt. Fields: ``producer``, ``lane``, ``end``."""


class UnknownLane(PushError):
    """The receiver does not own that lane. Fields: ``lane``, ``lanes``."""


class Superseded(PushError):
    """A newer worker has taken the lane over. Fields: ``lane``."""


class ReceiverStopped(PushError):
    """The receiver stops or has stopped; what it did not acknowledge must be sent again."""


class Replaced(ReceiverStopped):
    """Another receiver has taken the lane over. Fields: ``lane``."""


class ReceiverUnreachable(PushError):
    """No answer from the receiver. Fields: ``address``, ``reason``."""


class NotAReceiver(PushError):
    """What answers is no receiver. Fields: ``address``."""


def to_flight(error: AfsparkError) -> Exception:
    """The error as one that Flight carries to the other side, where `from_flight` makes it again."""
    kind = flight.FlightServerError
    if isinstance(error, NotAllowed):
        kind = flight.FlightUnauthenticatedError
    elif isinstance(error, ReceiverStopped):
        kind = flight.FlightUnavailableError
    document = error.to_json()
    if len(json.dumps(document)) > _DOCUMENT_BYTES:
        fields = {
            name: value if isinstance(value, int | float) else _shortened(value)
            for name, value in document["fields"].items()
        }
        document |= {"message": _shortened(error.message), "remedy": _shortened(error.remedy), "fields": fields}
    return kind(_shortened(str(error)), extra_info=json.dumps(document).encode())


def _shortened(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _TEXT_LENGTH else text[:_TEXT_LENGTH] + "..."


def from_flight(error: Exception, address: str) -> AfsparkError:
    """The error of ours that a failed Flight call stands for.

    It is the receiver's own error if the receiver has sent one. Otherwise Flight's error says whether the token was
    refused (`NotAllowed`), something else than a receiver answers (`NotAReceiver`), or nobody (`ReceiverUnreachable`).
    """
    extra = getattr(error, "extra_info", b"")
    if extra:
        try:
            return from_json(json.loads(extra))
        except (ValueError, KeyError, TypeError):
            pass
    if isinstance(error, pa.ArrowNotImplementedError):
        return NotAReceiver(
            f"What answers at {address} is no receiver of afspark.", remedy="Check the address.", address=address
        )
    # Some calls of pyarrow turn every status into a plain error and leave only its name.
    refused = isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError)
    if refused or "Detail: Unauth" in str(error):
        return NotAllowed(f"The receiver at {address} refused the token.", remedy="Give the token it expects.")
    reason, remedy = why_unreachable(str(error) or type(error).__name__)
    return ReceiverUnreachable(
        f"The receiver at {address} cannot be reached: {reason}.", remedy=remedy, address=address, reason=reason
    )
