"""Refresh materialized views: find changed rows, compute values in a scratch table, commit once. See decision 10."""
