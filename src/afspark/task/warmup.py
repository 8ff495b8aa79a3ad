"""Loads or compiles the kernels once, before Python workers are forked from this process."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from afspark.model.kernels.hashing import hash_columns
from afspark.model.kernels.lines import all_lines, lines_with, pieces_of, rows_with
from afspark.model.kernels.logistic import Workspace, learn_dense, place_hashes, place_integers
from afspark.model.kernels.plain_arrays import read_only
from afspark.model.kernels.sampling import bernoulli
from afspark.model.kernels.sketch import SeenKeys, update_and_find
from afspark.model.kernels.words import WordCounter
from afspark.model.states import HashTable, HeapColumns, Matrix, State, Vector
from afspark.protocol.parcels import Packet, digest_of, pack_packets


def warm_up() -> None:
    """Runs the kernels on a few rows, through backup and restore, with the types streams have most often."""
    counter = WordCounter()
    counter.count(pa.array([b"to be or not to be"], pa.large_binary()))
    words = counter.finish()
    text = pa.array([b"to be\nor not\nto be\n"], pa.large_binary())
    for search in (lines_with, rows_with):
        search(text, b"not")
    all_lines(pieces_of(text))
    packets = pa.record_batch({"src": pa.array([1, 2]), "dst": pa.array([3, 4]), "bytes": pa.array([40, 1500])})
    hashes = hash_columns(packets, ["src", "dst"])
    digest_of(pack_packets([Packet(packets)]))
    bernoulli(1, 0.5, count=2)
    sample = HashTable(key="int64", value="int64", divergence="manhattan").open(HeapColumns(), "sample")
    sample.begin()
    sample.add(hashes.view(np.int64), 1)
    _back_up(sample)
    delta = np.zeros((4, 8), np.int64)
    table = HashTable(key="string", value="int64").open(HeapColumns(), "table")
    table.begin()
    table.add(words.column("word"), words.column("count"))
    table.put(words.column("word"), np.ones(len(words), np.int64))
    _back_up(table)
    matrix = Matrix(rows=4, cols=8, value="int64").open(HeapColumns(), "matrix")
    matrix.begin()
    update_and_find(delta, hashes, packets.column("bytes").to_numpy(), 1.0, SeenKeys())
    matrix.add_dense(delta)
    _back_up(matrix)
    _learn()


def _learn() -> None:
    """The kernels of regression, with the features that the sources give: numbers, categories, sparse rows.

    What Arrow lends is read-only, and kernels are compiled anew for arrays that are not.
    """
    labels = read_only(np.array([1, 0], np.uint8))
    for kind in (np.float32, np.float64):
        learn_dense(labels, read_only(np.ones((2, 4), kind)), np.zeros(5), t=0, rate=1.0, norm=1.0)
    model = Vector(size=9, value="float64", divergence="euclidean").open(HeapColumns(), "model")
    model.begin()
    space = Workspace.begin(model.values)
    cells = place_integers(read_only(np.array([[1, 2], [3, 4]], np.int32)), slots=8, first=1)
    place_hashes(np.array([1, 2], np.uint64), number=0, slots=8, first=1, out=cells[:, 0])
    space.learn_ones(labels, cells, t=0, rate=1.0)
    offsets, values = np.array([0, 2, 4]), np.ones(4)
    space.learn_sparse(labels, offsets, cells.reshape(-1), values, t=0, rate=1.0, norm=1.0)
    touched, learned = space.changes()
    merging = Workspace.begin(model.values, merging=True)
    merging.add_model(read_only(touched), read_only(learned), 1.0)
    model.put_at(*merging.changes())
    _back_up(model)


def _back_up(state: State) -> None:
    state.update_drift()
    pairs = state.issue(0.0)
    assert pairs is not None
    state.changed()
    state.acknowledge()
    state.begin()
    state.rollback()
    state.spec.open(HeapColumns(), "restored").restore([pairs])
