"""What callers and other services say to the executor."""
