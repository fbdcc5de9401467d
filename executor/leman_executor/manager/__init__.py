"""Accept, queue, run, find, pause, cancel and delete the jobs of one executor, and take over jobs of dead executors."""

from leman_executor.manager.job_manager import JobManager

__all__ = ["JobManager"]
