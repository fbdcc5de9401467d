"""Plans of backfills: which work is left for a column, and why."""
