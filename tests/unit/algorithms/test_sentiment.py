"""Texts by keywords and their sentiment, on a worker of its own."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.algorithms import KeywordFilter, Lexicon, Sentiment
from afspark.algorithms.sentiment import mean_bound
from afspark.errors import UsageError
from afspark.model.preconditions import check_operator
from afspark.policies import Approximate, MiniBatch
from afspark.sources.generated_posts import BAD, GOOD
from tests.twins import sentiment_twin as twin
from tests.unit.algorithms.alone import Alone

KEYWORDS = ("spark", "#flink", "storm")
words = st.sampled_from(["Spark", "#Flink", "flink", "storm", "good", "bad", "not", "the", "\u201cgreat\u201d"])
posts = st.lists(st.tuples(st.lists(words, max_size=8).map(" ".join), st.sampled_from([1, 2, None])), max_size=12)


def items(rows: list[tuple[str | None, int | None]]) -> pa.RecordBatch:
    texts, authors = ([row[place] for row in rows] for place in (0, 1))
    times = pa.array(range(len(rows)), pa.int64())
    return pa.record_batch(
        {"time": times, "text": pa.array(texts, pa.string()), "author": pa.array(authors, pa.int64())}
    )


def filtered(batch: pa.RecordBatch) -> pa.RecordBatch:
    operator = KeywordFilter(KEYWORDS, keep=["author"])
    return operator.process(batch, Alone(operator, MiniBatch()).states)


def exact(rows: list[tuple[str | None, int | None]], *, by: bool) -> dict[tuple[str, ...], tuple[int, float]]:
    """Texts and score by keyword, and by author where that is asked for."""
    lexicon = Lexicon()
    counts: Counter[tuple[str, ...]] = Counter()
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for text, author in rows:
        for place in twin.matches(text or "", KEYWORDS):
            key = (KEYWORDS[place], *(["" if author is None else str(author)] if by else []))
            counts[key] += 1
            sums[key] += twin.score(text or "", lexicon.values, lexicon.all_negations)
    return {key: (counts[key], sums[key]) for key in counts}


def found(alone: Alone) -> dict[tuple[str, ...], tuple[int, float]]:
    rows = alone.operator.results([alone.share()]).to_pylist()
    names = [name for name in ("keyword", "author") if rows and name in rows[0]]
    assert all(row["mean"] == row["score"] / row["texts"] for row in rows)
    return {tuple(row[name] for name in names): (row["texts"], row["score"]) for row in rows}


@given(rows=posts)
def test_the_filter_sends_texts_that_have_a_keyword(rows: list[tuple[str, int | None]]) -> None:
    sent = filtered(items(rows)).to_pylist()
    kept = [number for number, (text, _) in enumerate(rows) if twin.matches(text, KEYWORDS)]
    assert [row["time"] for row in sent] == kept
    assert [row["text"] for row in sent] == [rows[number][0] for number in kept]
    assert [row["author"] for row in sent] == [rows[number][1] for number in kept]
    assert [[KEYWORDS.index(word) for word in row["keywords"]] for row in sent] == [
        twin.matches(rows[number][0], KEYWORDS) for number in kept
    ]


def test_the_filter_counts_what_it_cannot_use() -> None:
    operator = KeywordFilter(["a"])
    alone = Alone(operator, MiniBatch())
    batch = pa.record_batch({"time": ["1", "2014-09-01T00:00:00Z", "soon", None], "text": ["a", None, "a", "a"]})
    alone.states["skipped"].begin()
    assert operator.process(batch, alone.states).column("time").to_pylist() == [1.0]
    assert operator.results([alone.share()]).to_pylist() == [{"skipped": 3}]
    with pytest.raises(UsageError):
        KeywordFilter(["a"], on_bad="stop").process(batch, alone.states)


@settings(max_examples=30)
@given(batches=st.lists(posts, max_size=4), by=st.booleans())
def test_it_counts_and_adds_up(batches: list[list[tuple[str, int | None]]], by: bool) -> None:
    alone = Alone(Sentiment(by="author" if by else None), MiniBatch())
    for rows in batches:
        alone.apply([filtered(items(rows))])
    assert found(alone) == exact([row for rows in batches for row in rows], by=by)


@settings(max_examples=30)
@given(batches=st.lists(posts, min_size=1, max_size=5), failing=st.sets(st.integers(0, 4)), theta=st.integers(0, 12))
def test_failures_stay_inside_the_bound(
    batches: list[list[tuple[str, int | None]]], failing: set[int], theta: int
) -> None:
    alone = Alone(Sentiment(), Approximate(theta))
    for number, rows in enumerate(batches):
        alone.apply([filtered(items(rows))])
        if number in failing:
            alone.fail()
    got, lost = found(alone), alone.missing
    assert lost["texts"] <= theta and lost["score"] <= theta
    for key, (texts, score) in exact([row for rows in batches for row in rows], by=False).items():
        count, total = got.get(key, (0, 0.0))
        assert 0 <= texts - count <= lost["texts"]
        if count:
            assert abs(score - total) <= lost["score"]
            bound = mean_bound(count, total / count, bound_texts=lost["texts"], bound_score=lost["score"])
            assert abs(score / texts - total / count) <= bound + 1e-12


def test_shares_of_workers_add_up() -> None:
    rows = [("spark is good", 1), ("storm is bad", 2), ("spark and storm", 1)]
    alone = [Alone(Sentiment(), MiniBatch(), worker=worker, workers=2) for worker in range(2)]
    for worker, one in enumerate(alone):
        one.apply([filtered(items(rows[worker:]))])
    together = Sentiment().results([one.share() for one in alone]).to_pylist()
    expected = exact([*rows, *rows[1:]], by=False)
    assert {(row["keyword"],): (row["texts"], row["score"]) for row in together} == expected


def test_it_meets_the_precondition_of_approximation() -> None:
    rows = [(f"{word} {keyword}", 1) for word in (*GOOD, *BAD) for keyword in ("spark", "#flink", "spark storm")]
    check_operator(Sentiment(), [filtered(items(rows))]).raise_if_broken()


def test_words_that_generated_posts_use_are_in_the_lexicon() -> None:
    values = Lexicon().values
    assert all(values[word] > 0.5 for word in GOOD) and all(values[word] < -0.5 for word in BAD)
    assert len(values) > 7000 and min(values.values()) >= -4 and max(values.values()) <= 4


def test_a_lexicon_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("Whale\t3\nboat\t-1\t0.5\n\nwhale\t-3\n")
    lexicon = Lexicon.load(path)
    assert lexicon.values == {"whale": 3.0, "boat": -1.0}
    scores = lexicon.scores(pa.array(["whale", "not a WHALE", "boat", "good", None]))
    assert scores[0] > 0 > scores[1] and scores[2] < 0 and list(scores[3:]) == [0, 0]
    assert lexicon.fingerprint() != Lexicon().fingerprint() == "vader 3.3.2"
    assert pickle.loads(pickle.dumps(Sentiment(lexicon=lexicon))).lexicon == lexicon


@pytest.mark.parametrize("text", ["", "good", "good\tvery", "two words\t1", "good\tnan", "\t1"])
def test_files_that_are_no_lexicon(text: str, tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        Lexicon.load(path)
    assert caught.value.path == str(path)
    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError):
            Lexicon.load(missing)


@pytest.mark.parametrize(
    "wrong",
    [{"keywords": []}, {"keywords": "spark"}, {"keywords": ["two words"]}, {"keywords": ["a"], "keep": ["keywords"]}],
)
def test_filters_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        KeywordFilter(**wrong)


@pytest.mark.parametrize(
    ("columns", "column"),
    [
        ({"time": pa.int64()}, "text"),
        ({"text": pa.string()}, "time"),
        ({"text": pa.large_binary(), "time": pa.int64()}, "text"),
        ({"text": pa.string(), "time": pa.bool_()}, "time"),
        ({"text": pa.string(), "time": pa.int64()}, "author"),
    ],
)
def test_columns_that_the_filter_needs(columns: dict[str, pa.DataType], column: str) -> None:
    with pytest.raises(UsageError) as caught:
        KeywordFilter(["a"], keep=["author"]).check(pa.schema(columns))
    assert caught.value.column == column
    KeywordFilter(["a"], keep=["author"]).check(None)


def test_columns_that_sentiments_need() -> None:
    sound = {"text": pa.string(), "keywords": pa.list_(pa.string()), "author": pa.int64()}
    Sentiment(by="author").check(pa.schema(sound))
    for wrong in ({"keywords": None}, {"author": None}, {"author": pa.list_(pa.int64())}):
        changed = {name: kind for name, kind in {**sound, **wrong}.items() if kind is not None}
        with pytest.raises(UsageError):
            Sentiment(by="author").check(pa.schema(changed))
    with pytest.raises(UsageError):
        Sentiment(by="mean")


def test_fingerprints_tell_settings_apart() -> None:
    kinds = [Sentiment(), Sentiment(by="author"), Sentiment(column="body"), Sentiment(lexicon=Lexicon((("a", 1.0),)))]
    assert len({str(operator.fingerprint()) for operator in kinds}) == 4
    filters = [KeywordFilter(["a"]), KeywordFilter(["b"]), KeywordFilter(["a"], keep=["c"])]
    assert len({str(operator.fingerprint()) for operator in filters}) == 3
