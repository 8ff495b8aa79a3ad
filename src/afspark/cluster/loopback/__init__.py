"""A standalone Spark cluster on this machine, whose hosts are addresses of its loopback interface."""
