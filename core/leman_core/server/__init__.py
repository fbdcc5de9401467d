"""gRPC, once for all services: server, interceptors, errors, channels, conversions."""
