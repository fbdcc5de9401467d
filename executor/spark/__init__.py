"""Workers as Spark tasks. The only room that imports pyspark."""
