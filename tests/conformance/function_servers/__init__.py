"""What a function server in any language does, seen by stock Flight clients."""
