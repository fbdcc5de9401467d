"""Stored formats and the rules of values, for the services and for reads without them."""
