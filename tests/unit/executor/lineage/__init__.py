"""Lineage of jobs."""
