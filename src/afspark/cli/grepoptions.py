"""Options of ``afspark run grep``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from afspark.cli import values
from afspark.cli.options import GREP, CommandOptions, add_common, add_on_bad, add_parser


@dataclass(frozen=True, kw_only=True)
class GrepOptions(CommandOptions):
    """What ``afspark run grep`` was asked to do."""

    pattern: str = ""
    regex: bool = False
    ignore_case: bool = False
    invert: bool = False


def add_grep(algorithms: Any) -> None:
    parser = add_parser(algorithms, GREP, "find the lines that hold a text or match a regular expression")
    parser.add_argument("pattern", metavar="PATTERN", help="what to look for")
    group = parser.add_argument_group("input (one of the first two)")
    origin = group.add_mutually_exclusive_group(required=True)
    origin.add_argument("--input", metavar="DIR", help="a file, a folder with files, or a glob")
    origin.add_argument(
        "--generate", type=values.size, metavar="SIZE", help="make text of this size, like 500MB or 2GB; synthetic"
    )
    group.add_argument("--format", choices=("text", "parquet"), help="format of --input (default: text)")
    group.add_argument("--column", metavar="NAME", default="value", help="text column of Parquet (default: value)")
    add_on_bad(group)
    group = parser.add_argument_group("lines")
    group.add_argument("--regex", action="store_true", help="PATTERN is a regular expression (RE2's syntax)")
    group.add_argument("--ignore-case", action="store_true", help="capitals and small letters are the same")
    group.add_argument("--invert", action="store_true", help="the lines without a match")
    add_common(parser, GREP)


def grep_options(chosen: dict[str, Any]) -> GrepOptions:
    return GrepOptions(**chosen)
