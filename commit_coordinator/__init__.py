"""Makes work visible, exactly once: one lane a table, checks before every commit, group commit."""
