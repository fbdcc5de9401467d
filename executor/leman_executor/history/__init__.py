"""What an executor knows of all jobs of a database: their history, their failed rows, their costs."""
