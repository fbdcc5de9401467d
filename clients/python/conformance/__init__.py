"""Runs the cases of tests/conformance/cases with the public surface of `leman`."""
