"""The entry point: options in, exit status out.

0: done; 1: something unexpected, damage that ``inspect`` found, or a pipeline that ``plan`` found to be refused;
2: the user can do something about it; 128 + n: stopped by signal n.
"""

from __future__ import annotations

import signal
import sys
import traceback

from afspark.cli.algorithm_options import CommandOptions
from afspark.cli.assess_options import AssessOptions
from afspark.cli.bench_options import BenchOptions
from afspark.cli.failures import CUT_SHORT, GOES_ON, one_line, own_error
from afspark.cli.options import DemoOptions, InspectOptions, PlanOptions, SavepointOptions, parse
from afspark.cli.send_options import SendOptions
from afspark.cli.signals import StopSignal
from afspark.errors import AfsparkError


def main(argv: list[str] | None = None) -> int:
    """Runs the command in ``argv`` (None: of this process)."""
    try:
        options = parse(argv)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except AfsparkError as error:
        print(one_line(error), file=sys.stderr)
        return 2
    return _sent(options) if isinstance(options, SendOptions) else _guarded(options)


def _sent(options: SendOptions) -> int:
    # Without Spark: a producer's machine need not have it.
    from afspark.cli.send import send

    try:
        return send(options)
    except KeyboardInterrupt:
        print("afspark: stopped.", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001 (as below)
        return _fail(error, debug=options.debug)


def _guarded(
    options: CommandOptions
    | DemoOptions
    | InspectOptions
    | SavepointOptions
    | PlanOptions
    | BenchOptions
    | AssessOptions,
) -> int:
    # Heavy imports only once the options are known to be good.
    from afspark.cli.bench import measured
    from afspark.cli.demo import demo
    from afspark.cli.follow import Interrupted
    from afspark.cli.inspect_command import show
    from afspark.cli.run import run
    from afspark.cli.savepoint_command import save

    try:
        if isinstance(options, SavepointOptions):
            return save(options)
        if isinstance(options, InspectOptions):
            return show(options)
        if isinstance(options, PlanOptions):
            from afspark.cli.plan_command import plan

            return plan(options)
        if isinstance(options, AssessOptions):
            from afspark.cli.assess_command import assess

            return assess(options)
        if isinstance(options, BenchOptions):
            return measured(options)
        return run(options) if isinstance(options, CommandOptions) else demo(options)
    except Interrupted as stop:
        kept = isinstance(options, CommandOptions) and options.checkpoint is not None
        then = GOES_ON if kept else "Nothing was kept; with --checkpoint a later run could go on."
        if kept and not stop.orderly:
            then = f"{CUT_SHORT} {then}"
        print(f"afspark: stopped after {stop.batches} batches. {then}", file=sys.stderr)
        return 128 + stop.signal
    except KeyboardInterrupt as stop:
        print("afspark: stopped.", file=sys.stderr)
        return 128 + (stop.signal if isinstance(stop, StopSignal) else signal.SIGINT)
    except Exception as error:  # noqa: BLE001 (the last stop: whatever it is becomes a line and a status)
        return _fail(error, debug=options.debug)


def _fail(error: Exception, *, debug: bool) -> int:
    expected = own_error(error) is not None
    parts = [one_line(error), *(() if expected else ("Use --debug to see more.",)), *getattr(error, "__notes__", ())]
    if len(parts) > 1 and not parts[0].endswith((".", "!", "?", "…")):
        parts[0] += "."
    if debug:
        traceback.print_exception(error)
        print(getattr(error, "trace", ""), file=sys.stderr)
    print(" ".join(parts), file=sys.stderr)
    return 2 if expected else 1


if __name__ == "__main__":
    sys.exit(main())
