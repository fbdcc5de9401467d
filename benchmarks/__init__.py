"""Benchmarks: one script for each speed that Leman promises. See docs/benchmarks.md. None of them is a test."""
