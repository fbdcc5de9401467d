"""What operators see of the services from outside. No library is loaded for it unless someone asks for it."""
