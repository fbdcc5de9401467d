"""Cuts a plan into units, hands them out to workers, and sees to units whose worker dies or is silent."""
