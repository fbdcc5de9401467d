"""The commit coordinator: make work visible exactly once, by commit queues, preconditions and group commits."""
