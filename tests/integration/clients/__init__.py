"""Clients in other languages, against real services."""
