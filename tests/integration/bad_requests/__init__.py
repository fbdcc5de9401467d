"""A corpus of bad requests, made from the descriptors of the contract."""
