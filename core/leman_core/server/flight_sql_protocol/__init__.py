"""Generated from protos/arrow/flight/protocol/sql by scripts/protogen; do not edit."""
