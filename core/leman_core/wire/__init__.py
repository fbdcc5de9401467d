"""Convert protobuf messages to the domain model and back."""
