"""A simulator without Spark: the real engine, policies, states and store code under seeded random failures."""
