"""Previews: a function is tried on a few rows, in a function process, and nothing is written."""
