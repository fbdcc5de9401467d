"""Load: what the services answer when much is asked of them, and when ten times too much is."""
