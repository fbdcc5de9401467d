"""User-defined functions: definition, registry, binding to columns, loading on workers."""
