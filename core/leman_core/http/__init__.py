"""JSON over HTTP: the Connect protocol, and newline-delimited JSON, for all methods that gRPC answers here."""
