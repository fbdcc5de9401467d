"""Benchmarks: one script for each speed that Leman promises. See docs/benchmarks.md. None of them is a test."""

import os

os.environ.setdefault("LANCE_LOG", "error")  # each commit of column files would print a warning
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
