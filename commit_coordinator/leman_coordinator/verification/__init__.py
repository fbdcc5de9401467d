"""Shows whether what is stored is what was written: reads a whole database, compares digests, changes nothing."""
