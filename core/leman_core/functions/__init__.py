"""Functions and computed columns: definitions, checks, bindings, storable types."""
