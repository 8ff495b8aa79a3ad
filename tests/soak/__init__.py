"""Long runs with real kills, seeded: ``python -m tests.soak --help``."""
