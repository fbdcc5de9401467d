"""Generated from protos/arrow/flight/protocol by scripts/protogen; do not edit."""
