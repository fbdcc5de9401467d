"""Views in Lance: files of a view, the rows of its source, and what it records of them."""
