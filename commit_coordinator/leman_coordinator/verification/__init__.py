"""Verify a whole database: read everything, compare digests, change nothing."""
