"""Keep the job history of a database: states of jobs, their failed rows and their costs."""
