"""Which worker does what: units cut from a plan, handed out, and what becomes of those that do not come back."""
