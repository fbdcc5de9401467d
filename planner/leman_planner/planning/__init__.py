"""What is left to do for a column, and why."""
