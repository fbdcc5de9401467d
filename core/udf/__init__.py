"""What functions are, and what columns say of theirs: definitions, checks, bindings, types."""
