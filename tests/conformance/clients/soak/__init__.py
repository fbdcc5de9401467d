"""Clients that work on while services restart again and again: see docs/testing.md."""
