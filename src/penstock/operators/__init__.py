"""The logic of every operator, one concept a file; never aware of threads."""
