"""Makes work visible, exactly once: one commit queue a table, checks before every commit, group commit."""
