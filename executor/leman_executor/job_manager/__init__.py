"""Accepts, queues, runs, finds, pauses, cancels, deletes, takes over and hands back the jobs of one executor."""

from leman_executor.job_manager.manager import JobManager

__all__ = ["JobManager"]
