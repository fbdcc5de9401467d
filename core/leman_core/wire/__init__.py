"""Messages of protobuf and what the services make of them, in both directions."""
