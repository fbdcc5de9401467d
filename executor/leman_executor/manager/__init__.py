"""Accepts, queues, runs, finds, pauses, cancels, deletes, takes over and hands back the jobs of one executor."""

from leman_executor.manager.job_manager import JobManager

__all__ = ["JobManager"]
