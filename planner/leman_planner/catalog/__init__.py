"""Tables, computed columns and functions."""
