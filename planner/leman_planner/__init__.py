"""What is left to do, and why: a plan is a pure function of table snapshot, checkpoints and request."""
