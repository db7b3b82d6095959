"""Where a program runs: locally in PEs of this host, or on Spark."""
