"""What the applications behind ``afspark run`` were asked to do, and which of it does not go together."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.cli.algorithm_options import BARGAIN, CSV, SENTIMENT, SMARTGRID, CommandOptions, check
from afspark.errors import UsageError

DEFAULT_SECONDS = 600
DEFAULT_HOUSES = 10
DEFAULT_DAYS = 4
DEFAULT_SYMBOLS = 8000


@dataclass(frozen=True, kw_only=True)
class RecordOptions(CommandOptions):
    """What all of them are asked about files of records."""

    names: tuple[str, ...] = ()
    delimiter: str = ","


@dataclass(frozen=True, kw_only=True)
class SentimentOptions(RecordOptions):
    """What ``afspark run sentiment`` was asked to do. None where a default depends on the input."""

    keywords: tuple[str, ...] | None = None
    text: str = "text"
    time: str = "time"
    by: str | None = None
    lexicon: str | None = None
    window: float = 10
    slide: float = 1
    delay: float = 0
    #: of a generated day
    seconds: float | None = None
    end: bool = False


@dataclass(frozen=True, kw_only=True)
class SmartGridOptions(RecordOptions):
    """What ``afspark run smartgrid`` was asked to do. None where a default depends on the input."""

    slices: tuple[int, ...] | None = None
    days: int = 7
    largest: float | None = None
    houses: int | None = None
    generated_days: int | None = None


@dataclass(frozen=True, kw_only=True)
class BargainOptions(RecordOptions):
    """What ``afspark run bargain`` was asked to do. None where a default depends on the input."""

    symbols: int | None = None


def check_sentiment(options: SentimentOptions) -> None:
    """Raises UsageError for options that do not go together for sentiments."""
    _check_records(options, SentimentOptions(algorithm=SENTIMENT), ("text", "time"), ("seconds",))
    if options.input is not None and options.keywords is None:
        raise UsageError("Texts of files need --keywords.", remedy="Name words or hash-tags, like spark,#flink.")
    if options.end and options.checkpoint is None:
        raise UsageError("--end has a meaning with --checkpoint only.", remedy="Without one the stream ends anyway.")


def check_smartgrid(options: SmartGridOptions) -> None:
    """Raises UsageError for options that do not go together for predictions of loads."""
    _check_records(options, SmartGridOptions(algorithm=SMARTGRID), (), ("houses", "generated_days"))


def check_bargain(options: BargainOptions) -> None:
    """Raises UsageError for options that do not go together for bargains."""
    _check_records(options, BargainOptions(algorithm=BARGAIN), (), ("symbols",))


def _check_records(
    options: RecordOptions, defaults: RecordOptions, of_files: tuple[str, ...], of_generated: tuple[str, ...]
) -> None:
    """What says how files are read does not go with generated input, nor the other way round."""
    check(options)
    for names, given, what, other in (
        (("names", "delimiter", *of_files), options.input, "how files are read", "--generate"),
        (of_generated, options.generate, "what is generated", "--input"),
    ):
        for name in names:
            if given is None and getattr(options, name) != getattr(defaults, name):
                option = name.replace("_", "-")
                raise UsageError(f"--{option} says {what}.", remedy=f"Leave it out with {other}.")
    for name in ("names", "delimiter"):
        if options.format not in (None, CSV) and getattr(options, name) != getattr(defaults, name):
            raise UsageError(f"--{name} has no meaning for {options.format} files.", remedy="It is for CSV.")
