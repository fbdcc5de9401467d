"""The domain model as frozen values, and rules that need nothing else. No I/O."""
