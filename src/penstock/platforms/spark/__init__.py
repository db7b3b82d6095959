"""The Spark platform: the same compiled segments in Spark's Python workers. Nothing else imports pyspark."""
