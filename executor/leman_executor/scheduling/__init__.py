"""Cut a plan into units, hand them to workers, and reassign the units of dead or silent workers."""
