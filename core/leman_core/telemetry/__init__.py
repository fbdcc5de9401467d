"""Logs, metrics and traces. Their libraries are loaded only if they are exported."""
