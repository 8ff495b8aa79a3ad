"""``afspark demo``."""

from afspark.cli.options import DemoOptions


def demo(options: DemoOptions) -> int:
    return 0
