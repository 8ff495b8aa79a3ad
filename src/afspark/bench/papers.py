"""What the papers measured: AF-Stream, VLDB 2016, tables 4 and 5 and section 4.2.

On Amazon EC2, one worker on each of up to eleven c3.8xlarge machines: read them as ratios, like ours.
"""

from __future__ import annotations

from afspark.bench.workloads import GREP, HITTERS, JOIN, REGRESSION, WORDCOUNT

UNITS = {GREP: "MB/s", WORDCOUNT: "MB/s", HITTERS: "GB/s", JOIN: "GB/s", REGRESSION: "tuples/s"}

THROUGHPUT: dict[str, dict[str, float]] = {
    GREP: {"none": 3550, "approximate": 3480, "minibatch": 358.16, "upstream": 379.61},
    WORDCOUNT: {"none": 1920, "approximate": 1880, "minibatch": 380.49, "upstream": 373.89},
    HITTERS: {"none": 12.33, "approximate": 11.77, "minibatch": 0.91, "upstream": 0.89},
    JOIN: {"none": 6.96, "approximate": 6.59, "minibatch": 0.89, "upstream": 0.87},
    REGRESSION: {"none": 62_699, "approximate": 62_292, "minibatch": 14_770, "upstream": 12_827},
}
"""Tables 4 and 5."""

ACCURACY: dict[str, dict[str, tuple[float, float]]] = {
    HITTERS: {"Θ = 10⁵, L = 10³": (0.989, 0.928), "Θ = 10⁴, L = 10²": (0.989, 0.955)},
    JOIN: {"Θ = 10⁵, L = 10³": (0.091, 0.113), "Θ = 10⁴, L = 10²": (0.091, 0.106)},
    REGRESSION: {"Θ = 10, L = 10³": (0.943, 0.904), "Θ = 1, L = 10²": (0.943, 0.929)},
}
"""Precision, relative error and prediction rate without failures and after ten of them (figures 6 to 8)."""


def ratio(algorithm: str, contender: str, other: str) -> float:
    return THROUGHPUT[algorithm][contender] / THROUGHPUT[algorithm][other]
