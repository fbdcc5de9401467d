"""What one process of the services has to itself: environment, folders, memory, crash points."""
