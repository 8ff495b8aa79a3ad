"""Commands as tables: what a command is called, the options it takes, and the frozen value that they become.

A row names an option and says what may stand behind it. Its default is that of the field it becomes.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, Generic, NoReturn, TypeVar

from afspark.cli import values
from afspark.errors import UsageError

OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True)
class Option:
    """One option: ``--name``, or a bare name for what stands without one.

    ``kind`` turns its text into a value, or lists the values there are; a field that is True or False needs neither.
    ``field`` is what the value is called if that is not the option's own name.
    """

    name: str
    help: str
    metavar: str | None = None
    kind: Callable[[str], Any] | tuple[str, ...] | None = None
    field: str = ""
    #: may be given several times
    repeated: bool = False

    @property
    def is_named(self) -> bool:
        return self.name.startswith("--")

    @property
    def becomes(self) -> str:
        """The field that has its value."""
        return self.field or self.name.removeprefix("--").replace("-", "_")

    def add_to(self, group: Any, default: Any) -> None:
        """Makes the option known to a parser or a group of one."""
        settings: dict[str, Any] = {"help": self.help}
        if isinstance(default, bool):
            settings |= {"action": "store_false" if default else "store_true"}
        else:
            settings |= {"choices": self.kind} if isinstance(self.kind, tuple) else {"type": self.kind}
            settings |= {"metavar": self.metavar} if self.metavar else {}
            settings |= {"default": list(default) if self.repeated else default} if self.is_named else {}
        if self.repeated:
            settings |= {"action": "append"} if self.is_named else {"nargs": "*"}
        if self.is_named:
            settings |= {"dest": self.becomes}
        group.add_argument(self.name, **settings)


@dataclass(frozen=True)
class Group:
    """Options under one title in the help text; without a title they are listed first."""

    title: str
    options: tuple[Option, ...]
    #: of so many at the beginning exactly one must be given
    one_of: int = 0


@dataclass(frozen=True, kw_only=True)
class Command(Generic[OptionsT]):
    """A command and the options it becomes; ``check`` raises UsageError for what does not go together."""

    name: str
    help: str
    description: str
    epilog: str
    groups: tuple[Group, ...]
    options: type[OptionsT]
    check: Callable[[OptionsT], None] = lambda options: None

    def add_to(self, commands: Any) -> None:
        """Makes the command known to the parser."""
        parser = add_parser(commands, self.name, self.help, self.description, self.epilog)
        defaults = {field.name: field.default for field in fields(self.options)}  # type: ignore[arg-type]
        for group in self.groups:
            place = parser.add_argument_group(group.title) if group.title else parser
            first = place.add_mutually_exclusive_group(required=True) if group.one_of else place
            for number, option in enumerate(group.options):
                default = defaults[option.becomes]
                option.add_to(first if number < group.one_of else place, None if default is MISSING else default)

    def made_of(self, chosen: dict[str, Any]) -> OptionsT:
        """The options out of what was parsed; UsageError if they do not go together."""
        repeated = {option.becomes for group in self.groups for option in group.options if option.repeated}
        options = self.options(**{name: tuple(v) if name in repeated else v for name, v in chosen.items()})
        self.check(options)
        return options


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Leaves descriptions as they are, and names such as hot-standby whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", remedy=f"See {self.prog} --help.")


def add_parser(commands: Any, name: str, purpose: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A command without options; its epilog is shown as it is, and its description in lines of 79 characters."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=textwrap.fill(description, 79),
        epilog=epilog,
        formatter_class=HelpText,
    )
    return parser


SPARK = (
    Option("--master", "Spark master (default: this machine, all cores)", "URL"),
    Option("--conf", "a Spark setting; may be given several times", "KEY=VALUE", values.setting, repeated=True),
)
TALK = (
    Option("--quiet", "say nothing but errors"),
    Option("--debug", "show Spark's log and the traces of errors"),
)
SEED = Option("--seed", "of input and failures (default: 1)", "N", values.seed)
ON_BAD = ("skip", "stop")
