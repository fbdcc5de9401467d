"""How this process reaches object stores: what it was told of them, and what Lance and pyarrow call that.

Nothing is told of a store that no options cover: then both libraries go by the environment of the process.
"""
