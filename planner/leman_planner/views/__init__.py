"""Views and refreshes: the resolution of a view's query, and plans of refreshes."""
