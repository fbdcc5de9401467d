"""Requests, commit queues, preconditions and group commits."""
