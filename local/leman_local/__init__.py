"""Runs everything on one machine: a supervisor runs the services and Redis for one local database."""
