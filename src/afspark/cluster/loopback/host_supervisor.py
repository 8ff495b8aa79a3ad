"""The process that has started the hosts and ends them: when it is asked to, and when whoever started it has died.

It takes a request a line on its standard input, as JSON, and answers each with a line. When its input ends, whatever
the reason is, it stops everything, so that a killed driver leaves nothing behind. It heeds no signals: those who send
them to all processes at once ask the driver, too.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from afspark.cluster.loopback.loopback_hosts import LoopbackHosts
from afspark.errors import AfsparkError, UsageError

REQUESTS = ("start_master", "found_url", "start", "is_ready", "kill")


def serve(hosts: LoopbackHosts) -> None:
    """Carries out the requests on standard input."""
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.write(json.dumps(_answer(hosts, request["do"], request["given"])) + "\n")
        sys.stdout.flush()


def _answer(hosts: LoopbackHosts, name: str, given: list[str]) -> dict[str, Any]:
    assert name in REQUESTS, name
    try:
        return {"answer": getattr(hosts, name)(*given)}
    except AfsparkError as error:
        return {"error": error.to_json()}
    except OSError as error:
        return {"error": UsageError(f"A host cannot be started: {error}.").to_json()}


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, slots, base, base_variable, master, *launcher = sys.argv[1:]
    hosts = LoopbackHosts(Path(folder), int(slots), Path(base), base_variable, master, launcher)
    try:
        serve(hosts)
    finally:
        hosts.stop()


if __name__ == "__main__":
    main()
