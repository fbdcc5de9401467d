"""What functions and computed columns are: definitions, checks, bindings, storable types."""
