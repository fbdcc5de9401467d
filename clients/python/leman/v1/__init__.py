"""Generated from protos/leman/v1 by scripts/protogen; do not edit."""
