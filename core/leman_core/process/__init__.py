"""The resources of one service process: environment, folders, memory, addresses."""
