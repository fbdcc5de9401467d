"""The service that makes work visible exactly once: a commit queue per table, checks before a commit, group commit."""
