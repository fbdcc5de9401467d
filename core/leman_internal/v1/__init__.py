"""Generated from protos/leman/internal/v1 by scripts/protogen; do not edit."""
