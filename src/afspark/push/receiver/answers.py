"""Errors as answers to a Flight call: one clean line to the caller, details in this process's log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import flight

from afspark.errors import AfsparkError
from afspark.push.wire.push_errors import PushError, WireError, to_flight

LOG = logging.getLogger("afspark")


@contextlib.contextmanager
def answering(count: Callable[[str], None] = lambda kind: None) -> Iterator[None]:
    """Whatever is raised inside goes to the caller as an error of ours: Flight adds a traceback to any other.

    ``count`` is called with the kind of error.
    """
    try:
        yield
    except AfsparkError as error:
        count(type(error).__name__)
        raise to_flight(error) from error
    except UnicodeDecodeError as error:
        # Flight leaves the names of columns and actions to be decoded when they are looked at.
        count(WireError.__name__)
        raise to_flight(WireError("A name is not UTF-8.", what="utf-8")) from error
    except (pa.ArrowException, OSError) as error:
        # The connection broke, or Flight could not make sense of what came.
        count("broken")
        LOG.debug("A call has broken off.", exc_info=True)
        reason = (str(error).splitlines() or [""])[0].partition(" Detail: ")[0]
        raise to_flight(WireError(f"What came cannot be read: {reason.rstrip('.')}.", what="message")) from error
    except Exception as error:
        count("internal")
        LOG.exception("A call has failed.")
        raise to_flight(PushError("The receiver failed.", remedy="Its log has the details.")) from error


class Unserved(flight.FlightServerBase):  # type: ignore[misc]
    """A server that refuses all calls, for servers that take some: Flight's own refusal is a traceback."""

    #: what to do instead
    remedy = "Producers say hello and send batches with DoPut."

    def _refuse(self, *_: Any) -> NoReturn:
        raise to_flight(WireError("This call is not served here.", remedy=self.remedy, what="call"))

    list_flights: Any = _refuse
    get_flight_info: Any = _refuse
    get_schema: Any = _refuse
    list_actions: Any = _refuse
    do_put: Any = _refuse
    do_get: Any = _refuse
    do_exchange: Any = _refuse
    do_action: Any = _refuse
