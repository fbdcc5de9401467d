"""What a view says about itself: its definition in metadata, and which rows it holds in which order."""
