"""Services that are seen from outside: what they export of a real job."""
