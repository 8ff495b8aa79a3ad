"""Plain Python twin of the kernels that look words of texts up."""

from afspark.report.recount_texts import matches, score, words_of

__all__ = ["matches", "score", "words_of"]
