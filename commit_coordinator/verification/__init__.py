"""Whether what is stored is what was written: a database, read whole and compared with its digests. Changes nothing."""
