"""Writes of more than fits into the buffers of a connection.

Whoever reads at the other end may be stopped. Once bytes are on their way, Flight does not give a write up when its
stream is cancelled: it ends when the connection does, with the process at the other end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

#: What a write may have that never has to wait for the other end.
BUFFERED_BYTES = 1 << 15


def write_within(seconds: float, write: Callable[[], None]) -> None:
    """Carries out ``write``, and leaves it to a thread of its own if it takes longer: `TimeoutError`. Nobody may touch
    its stream then.
    """
    ended = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            write()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    if not ended.wait(seconds):
        raise TimeoutError(f"nothing was read for {seconds:.0f} s")
    if failed:
        raise failed[0]
