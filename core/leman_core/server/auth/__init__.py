"""Who calls, and what they may: callers, what each call asks of them, and where that is compared."""
