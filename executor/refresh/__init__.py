"""Refreshes of materialized views: which rows, their values in a stage, one commit. See decision 10."""
