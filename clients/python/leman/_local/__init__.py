"""Local databases: embedded services, and reads without services."""
