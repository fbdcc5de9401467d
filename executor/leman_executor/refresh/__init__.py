"""Refreshes of materialized views: which rows, their values in a scratch table, one commit. See decision 10."""
