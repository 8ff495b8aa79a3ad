"""What a learner reads of a row: which column is the label, which are features, and which cell of a model each has.

Cell 0 of a model is the bias, then comes one cell for each number, then ``slots`` cells that categorical values and
sparse indices share by hashing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from afspark.errors import UsageError
from afspark.model.column_names import column_names
from afspark.model.kernels.hashing import hash_columns
from afspark.model.kernels.logistic import Lesson, Workspace, learn_dense, place_hashes, place_integers
from afspark.model.kernels.plain_arrays import Array, as_array

MOST_SLOTS = 2**31 - 2
#: Columns that a stream of sparse rows has, as the libsvm source gives them.
SPARSE = ("index", "value")
#: The column that generated rows have: a list of fixed size.
FEATURES = "features"


@dataclass(frozen=True, kw_only=True)
class Features:
    """``numeric`` and ``categorical`` name columns (or one column of lists of fixed size); ``sparse`` names a column
    of lists of indices and one of lists of values. Without any of them they are taken from the stream's columns:
    ``index`` and ``value``, or ``features``, or every column of numbers except the label.

    Labels are 1 and 0, 1 and -1, or truth values; ``positive`` names the label that counts as 1 where there are others.
    """

    label: str = "label"
    positive: str | float | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    sparse: tuple[str, str] | None = None
    #: cells for hashed features
    slots: int = 10**6
    #: longer rows of numbers are shortened to this length, which bounds the step that one item can cause
    norm: float = 32.0
    #: how many numbers and how many categorical values a row has; known once the stream is
    numbers: int | None = None
    values: int | None = None

    def __post_init__(self) -> None:
        for name in ("numeric", "categorical"):
            object.__setattr__(self, name, column_names(name, getattr(self, name)))
        if not 1 <= self.slots <= MOST_SLOTS:
            raise UsageError(f"slots must be 1 to {MOST_SLOTS}, not {self.slots}.", slots=self.slots)
        if not 0 < self.norm < math.inf:
            raise UsageError(f"norm must be a number above 0, not {self.norm}.", norm=self.norm)
        if self.sparse and (self.numeric or self.categorical):
            raise UsageError("Sparse rows have no further feature columns.", remedy="Leave out sparse, or the rest.")
        twice = [name for name in (*self.numeric, *self.categorical) if name == self.label]
        if twice:
            raise UsageError(f"Column {self.label!r} is the label and a feature.", column=self.label)

    # --- the stream's columns -------------------------------------------------------------------------------

    def fitted(self, schema: pa.Schema | None) -> Features:
        """The same with everything that follows from the stream's columns; UsageError if they do not fit."""
        if schema is None:
            if not (self.numeric or self.categorical or self.sparse):
                raise UsageError(
                    "The feature columns are not known.", remedy="Name them: numeric, categorical, sparse."
                )
            return replace(self, numbers=self.numbers or len(self.numeric), values=self.values or len(self.categorical))
        self._check_positive(_column(schema, self.label, "label").type)
        chosen = self if self.numeric or self.categorical or self.sparse else self._guessed(schema)
        if chosen.sparse:
            for name in chosen.sparse:
                kind = _column(schema, name, "feature").type
                if not (pat.is_list(kind) or pat.is_large_list(kind)) or not _is_number(kind.value_type):
                    raise _not_numeric(name, kind, "Sparse features are two columns of lists of numbers.")
        numbers = sum(_width(schema, name, numeric=True) for name in chosen.numeric)
        values = sum(_width(schema, name, numeric=False) for name in chosen.categorical)
        return replace(chosen, numbers=numbers, values=values)

    def _check_positive(self, kind: pa.DataType) -> None:
        if self.positive is None:
            if not (_is_number(kind) or pat.is_boolean(kind)):
                raise UsageError(
                    f"The label {self.label!r} is {kind}, not a number.",
                    remedy="Say which label counts as 1: positive.",
                    column=self.label,
                )
        elif not _is_text(kind):
            try:
                float(self.positive)
            except ValueError:
                raise UsageError(
                    f"The label {self.label!r} is {kind}, and never {self.positive!r}.",
                    remedy="Read labels as text (csv(..., text_label=True)), or name a number as positive.",
                    column=self.label,
                ) from None

    def _guessed(self, schema: pa.Schema) -> Features:
        if all(name in schema.names for name in SPARSE) and pat.is_list(schema.field(SPARSE[0]).type):
            return replace(self, sparse=SPARSE)
        if FEATURES in schema.names and pat.is_fixed_size_list(schema.field(FEATURES).type):
            if pat.is_integer(schema.field(FEATURES).type.value_type):
                return replace(self, categorical=(FEATURES,))
            return replace(self, numeric=(FEATURES,))
        others = tuple(name for name in schema.names if name != self.label)
        if not others:
            raise UsageError(f"Besides the label {self.label!r} there is no column.", remedy="Name another label.")
        return replace(self, numeric=others)

    # --- the model ------------------------------------------------------------------------------------------

    @property
    def hashes(self) -> bool:
        """Whether any column is hashed."""
        return bool(self.categorical or self.sparse)

    @property
    def first_slot(self) -> int:
        """The first cell that hashed columns use."""
        return 1 + (self.numbers or 0)

    @property
    def cells(self) -> int:
        """The number of cells that a model of these features has."""
        return self.first_slot + (self.slots if self.hashes else 0)

    @property
    def reach(self) -> float:
        """The longest that a row with its bias can be, also if all its categorical values share a slot."""
        numbers = self.norm if self.numeric or self.sparse else 0.0
        return math.sqrt((1.0 + (self.values or 0)) ** 2 + numbers**2)

    def names(self) -> list[str | None]:
        """What the cells in front of the slots stand for; None where a column is a list."""
        plain = len(self.numeric) == self.numbers
        return ["bias", *(self.numeric if plain else [None] * (self.numbers or 0))]

    def to_json(self) -> dict[str, Any]:
        """What checkpoints compare."""
        return asdict(self)

    # --- rows -----------------------------------------------------------------------------------------------

    def sound(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that have a label and all their features."""
        label = as_array(items.column(self.label))
        keep: Any = None
        if self.positive is None:
            if pat.is_boolean(label.type):
                label = label.cast(pa.int8())
            else:
                self._check_positive(label.type)
            known = pc.is_in(label, pa.array([-1, 0, 1], label.type)) if _is_signed(label.type) else pc.less(label, 2)
            if known.false_count or known.null_count:
                keep = known
        for column in (label, *(as_array(items.column(name)) for name in self._columns())):
            for mask in _complete(column):
                keep = mask if keep is None else pc.and_(keep, mask)
        if self.sparse:
            lengths = [pc.list_value_length(as_array(items.column(name))) for name in self.sparse]
            same = pc.equal(*lengths)
            if same.false_count:
                keep = same if keep is None else pc.and_(keep, same)
        return items if keep is None else items.filter(keep)

    def _columns(self) -> Iterable[str]:
        return (*self.numeric, *self.categorical, *(self.sparse or ()))

    def labels(self, items: pa.RecordBatch) -> Array:
        """1 and 0 of sound rows."""
        label = as_array(items.column(self.label))
        if self.positive is not None:
            text = _is_text(label.type)
            wanted = pa.scalar(str(self.positive) if text else float(self.positive))
            hits = pc.equal(label if text else label.cast(pa.float64()), wanted)
        else:
            hits = label if pat.is_boolean(label.type) else pc.greater(label, pa.scalar(0, label.type))
        return hits.cast(pa.uint8()).to_numpy()

    def numbers_of(self, items: pa.RecordBatch) -> Array:
        """The numeric features as a matrix."""
        parts = [_matrix(as_array(items.column(name))) for name in self.numeric]
        if len(parts) == 1 and parts[0].dtype in (np.float32, np.float64):
            return parts[0]
        out = np.empty((items.num_rows, self.numbers or 0))
        start = 0
        for part in parts:
            out[:, start : start + part.shape[1]] = part
            start += part.shape[1]
        return out

    def cells_of(self, items: pa.RecordBatch) -> Array:
        """The cells of the categorical features as a matrix."""
        if len(self.categorical) == 1 and pat.is_fixed_size_list(items.column(self.categorical[0]).type):
            matrix = _matrix(as_array(items.column(self.categorical[0])))
            return place_integers(matrix, slots=self.slots, first=self.first_slot)
        out = np.empty((items.num_rows, len(self.categorical)), np.uint32)
        for number, name in enumerate(self.categorical):
            hashes = hash_columns(items, [name])
            place_hashes(hashes, number=number, slots=self.slots, first=self.first_slot, out=out[:, number])
        return out

    def sparse_of(self, items: pa.RecordBatch) -> tuple[Array, Array, Array]:
        """Any rows as offsets, cells and values."""
        if self.sparse:
            index, value = (as_array(items.column(name)) for name in self.sparse)
            offsets = np.zeros(len(index) + 1, np.int64)
            np.cumsum(pc.list_value_length(index).to_numpy(), out=offsets[1:])
            folded = pc.list_flatten(index).to_numpy() % self.slots + self.first_slot
            return offsets, folded.astype(np.uint32), pc.list_flatten(value).cast(pa.float64()).to_numpy()
        numbers, cells = self.numbers_of(items), self.cells_of(items)
        rows, width = len(numbers), numbers.shape[1] + cells.shape[1]
        places = np.empty((rows, width), np.uint32)
        places[:, : numbers.shape[1]] = np.arange(1, numbers.shape[1] + 1, dtype=np.uint32)
        places[:, numbers.shape[1] :] = cells
        values = np.ones((rows, width))
        values[:, : numbers.shape[1]] = numbers
        return np.arange(rows + 1) * width, places.reshape(-1), values.reshape(-1)


class ItemLearner:
    """Learns the items of one batch on top of a model, which itself stays as it is."""

    def __init__(self, features: Features, base: Array, rate: float) -> None:
        self.features, self.rate = features, rate
        self._small = None if features.hashes else np.array(base)
        self._space = Workspace.begin(base) if features.hashes else None

    def learn(self, items: pa.RecordBatch, labels: Array, t: int) -> Lesson:
        """Updates the model with sound rows; ``t`` rows went before them."""
        features, space = self.features, self._space
        if self._small is not None:
            numbers = features.numbers_of(items)
            return learn_dense(labels, numbers, self._small, t=t, rate=self.rate, norm=features.norm)
        assert space is not None
        if not features.numeric and not features.sparse:
            return space.learn_ones(labels, features.cells_of(items), t=t, rate=self.rate)
        return space.learn_sparse(labels, *features.sparse_of(items), t=t, rate=self.rate, norm=self._norm)

    @property
    def _norm(self) -> float:
        # Categorical values count too; of those there are only so many.
        return math.sqrt(self.features.norm**2 + (self.features.values or 0) ** 2)

    def changes(self) -> tuple[Array, Array]:
        """The cells that changed and their new values. Ends the work."""
        if self._small is not None:
            return np.arange(len(self._small), dtype=np.uint32), self._small
        assert self._space is not None
        found = self._space.changes()
        self._space.end()
        return found


def _column(schema: pa.Schema, name: str, role: str) -> pa.Field:
    if schema.get_field_index(name) < 0:
        raise UsageError(
            f"There is no single column {name!r}; the stream has {', '.join(schema.names)}.",
            remedy=f"Name an existing column as {role}.",
            column=name,
        )
    return schema.field(name)


def _width(schema: pa.Schema, name: str, *, numeric: bool) -> int:
    kind = _column(schema, name, "feature").type
    if pat.is_fixed_size_list(kind):
        fits = _is_number(kind.value_type) if numeric else pat.is_integer(kind.value_type)
        if not fits:
            raise _not_numeric(name, kind, "A list holds numbers, a categorical one whole numbers.")
        return int(kind.list_size)
    if numeric and not _is_number(kind):
        raise _not_numeric(name, kind, "Name it as categorical, or leave it out.")
    return 1


def _not_numeric(name: str, kind: pa.DataType, remedy: str) -> UsageError:
    return UsageError(f"Feature column {name!r} is {kind}, not numeric.", remedy=remedy, column=name)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind))


def _is_signed(kind: pa.DataType) -> bool:
    return not pat.is_unsigned_integer(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind))


def _complete(column: pa.Array) -> list[pa.Array]:
    """Masks of the rows without nulls, as far as there are nulls."""
    found = [column.is_valid()] if column.null_count else []
    kind = column.type
    if pat.is_fixed_size_list(kind):
        inner = column.flatten() if not column.null_count else column.fill_null([0] * kind.list_size).flatten()
        if inner.null_count:
            whole = inner.is_valid().to_numpy(zero_copy_only=False).reshape(-1, kind.list_size)
            found.append(pa.array(whole.all(axis=1)))
    elif pat.is_list(kind) or pat.is_large_list(kind):
        inner = column.flatten()
        if inner.null_count:
            broken = np.unique(pc.list_parent_indices(column).filter(inner.is_null()).to_numpy())
            mask = np.ones(len(column), bool)
            mask[broken] = False
            found.append(pa.array(mask))
    return found


def _matrix(column: pa.Array) -> Array:
    """Numbers of a column without nulls, a row each."""
    width = column.type.list_size if pat.is_fixed_size_list(column.type) else 1
    inner = column.flatten() if pat.is_fixed_size_list(column.type) else column
    if pat.is_float16(inner.type):
        inner = inner.cast(pa.float32())
    return inner.to_numpy(zero_copy_only=False).reshape(len(column), width)
