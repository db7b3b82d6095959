"""The Spark platform: the same compiled segments, inside Spark's Python workers. The only place that imports pyspark."""
