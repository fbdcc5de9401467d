"""The executor's API: JobService, forwarding between executors, and clients of the other services."""
