"""Live state that may be lost at any time: reservations and leases. The only package that imports redis."""
