"""Run workers as Spark tasks; the only package that imports pyspark."""
