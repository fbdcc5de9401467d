"""Views and refreshes: what a view is made of, and what a refresh has to do."""
