"""Run Leman on one machine: a supervisor runs the services and Redis for local databases."""
