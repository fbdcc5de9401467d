"""Serve JobService, forward calls between executors, and call the other services."""
