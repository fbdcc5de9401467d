"""Keep reservations and leases in Redis, which may lose them at any time. The only package that imports redis."""
