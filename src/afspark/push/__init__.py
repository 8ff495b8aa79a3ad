"""Ingest without a log: a Flight endpoint for pushed items, with bounded loss."""
