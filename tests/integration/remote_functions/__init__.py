"""Jobs whose functions are computed by servers of their authors."""
