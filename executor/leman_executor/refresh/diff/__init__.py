"""The row diff of a refresh: which rows of a view came, went or changed with its source."""
