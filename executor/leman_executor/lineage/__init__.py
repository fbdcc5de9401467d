"""Lineage: what jobs made of what, told as OpenLineage has it."""
