"""Which rows two outputs do not have in common, whatever their columns hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def different_rows(one: pa.Table, other: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows, each once, that are not in both tables as often. Nulls are equal, and so are NaN.

    >>> some, others = (pa.table({"id": ids, "of": [[i] for i in ids]}) for ids in ([1, 2, 2], [2, 3]))
    >>> different_rows(some, others, ["id", "of"])["id"].to_pylist()
    [1, 2, 3]
    """
    signed = [
        _plain(table.select(columns)).append_column("", pa.array(np.full(table.num_rows, sign)))
        for table, sign in ((one, 1), (other, -1))
    ]
    # What both have as often adds up to 0; grouping takes nulls for equal, as a join would not.
    sums = pa.concat_tables(signed, promote_options="permissive").group_by(columns).aggregate([("", "sum")])
    return sums.filter(pc.not_equal(sums["_sum"], 0)).select(columns)


def _plain(table: pa.Table) -> pa.Table:
    """The table with columns that Arrow can group by."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table[field.name].cast(field.type.value_type))
        elif pa.types.is_nested(field.type):
            texts = [repr(value) for value in table[field.name].to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table
