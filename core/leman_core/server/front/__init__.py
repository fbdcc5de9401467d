"""Envoy as one front address that refuses what is too much: the configuration for it."""
