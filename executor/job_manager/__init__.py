"""All jobs of one executor: accepted, queued, run, found, cancelled, taken over, handed back."""

from executor.job_manager.manager import JobManager

__all__ = ["JobManager"]
