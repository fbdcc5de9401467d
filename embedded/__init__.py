"""Everything on one machine: a supervisor that runs the services and Redis for one local database."""
