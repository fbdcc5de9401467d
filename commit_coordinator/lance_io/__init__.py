"""The Lance side of commits: what is installed in a table, and what lies beside it."""
