"""The planner: decide what is left to compute, and why, from a table's snapshot, checkpoints and a request."""
