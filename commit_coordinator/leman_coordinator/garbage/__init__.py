"""Finds, judges and removes files that nothing needs any more."""
