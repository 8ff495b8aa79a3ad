"""The options of the applications behind ``afspark run``, as tables."""

from __future__ import annotations

from afspark.cli import values
from afspark.cli.algorithm_options import BARGAIN, CSV, JSON_LINES, PARQUET, SENTIMENT, SMARTGRID
from afspark.cli.algorithm_tables import BAD_ROWS, FILES, ONE_OF_TWO, common, generated, texts
from afspark.cli.application_options import (
    DEFAULT_DAYS,
    DEFAULT_HOUSES,
    DEFAULT_SECONDS,
    DEFAULT_SYMBOLS,
    BargainOptions,
    SentimentOptions,
    SmartGridOptions,
    check_bargain,
    check_sentiment,
    check_smartgrid,
)
from afspark.cli.option_table import Command, Group, Option

_FORMAT = Option("--format", f"format of --input (default: {CSV})", kind=(CSV, JSON_LINES, PARQUET))
_OF_CSV = (
    Option("--names", "columns of CSV files whose first line is a row", "A,B", values.names),
    Option("--delimiter", "of CSV files (default: a comma)", "CHAR"),
)

_SENTIMENT = Command(
    **texts("filter texts by keywords and tell their sentiment, over sliding windows", SENTIMENT),
    options=SentimentOptions,
    check=check_sentiment,
    groups=(
        Group(
            ONE_OF_TWO,
            (
                FILES,
                generated("posts of 80 bytes of this size, like 500MB, in a day of bursts; synthetic"),
                _FORMAT,
                *_OF_CSV,
                Option("--text", "column of texts (default: text)", "C"),
                Option("--time", "column of times: seconds, or text such as 2014-09-01T12:00:00Z (default: time)", "C"),
                Option(
                    "--seconds",
                    f"how long a generated day takes (default: {DEFAULT_SECONDS})",
                    "N",
                    values.positive_amount,
                ),
                BAD_ROWS,
            ),
            one_of=2,
        ),
        Group(
            "sentiment",
            (
                Option(
                    "--keywords",
                    "words and #hash-tags to look for (generated posts: three of six)",
                    "A,B",
                    values.names,
                ),
                Option("--by", "a further column: count for each of its values apart", "C"),
                Option("--lexicon", "file of words with numbers: word, tab, number (default: VADER's words)", "FILE"),
                Option("--window", "length of a window in seconds (default: 10)", "N", values.positive_amount),
                Option("--slide", "seconds from one window to the next (default: 1)", "N", values.positive_amount),
                Option("--delay", "how many seconds late a text may be (default: 0)", "N", values.amount),
                Option("--end", "with --checkpoint: close the windows that are open; no input can follow then"),
            ),
        ),
        *common(SENTIMENT),
    ),
)

_SMARTGRID = Command(
    **texts(
        "predict the loads of plugs and houses from readings of smart plugs",
        SMARTGRID,
        "timestamp, value, property (0: work, 1: load), plug_id, household_id and house_id; CSV files without a line "
        "of names have an id before these",
    ),
    options=SmartGridOptions,
    check=check_smartgrid,
    groups=(
        Group(
            ONE_OF_TWO,
            (
                FILES,
                generated("readings of 37 bytes of this size, like 500MB, in days of bursts; synthetic"),
                _FORMAT,
                *_OF_CSV,
                Option("--houses", f"houses with generated readings (default: {DEFAULT_HOUSES})", "N", values.count),
                Option("--generated-days", f"days of generated readings (default: {DEFAULT_DAYS})", "N", values.count),
                BAD_ROWS,
            ),
            one_of=2,
        ),
        Group(
            "prediction",
            (
                Option("--slices", "lengths of slices in minutes (default: 1,5,15,60,120)", "N,N", values.counts),
                Option("--days", "past days that are looked at (default: 7)", "N", values.count),
                Option("--largest", "watts that no plug draws (default: 4096)", "N", values.positive_amount),
            ),
        ),
        *common(SMARTGRID),
    ),
)

_BARGAIN = Command(
    **texts(
        "find quotes of stocks that ask less than the last trades cost",
        BARGAIN,
        "key, time, ticker, type (trade or quote), price and volume (of trades), ask_price and ask_size (of quotes)",
    ),
    options=BargainOptions,
    check=check_bargain,
    groups=(
        Group(
            ONE_OF_TWO,
            (
                FILES,
                generated("trades and quotes of 48 bytes of this size, like 500MB, 500 a second in bursts; synthetic"),
                _FORMAT,
                *_OF_CSV,
                Option("--symbols", f"stocks with generated events (default: {DEFAULT_SYMBOLS:,})", "N", values.count),
                BAD_ROWS,
            ),
            one_of=2,
        ),
        *common(BARGAIN),
    ),
)

APPLICATIONS = (_SENTIMENT, _SMARTGRID, _BARGAIN)
