"""What only the services say to each other: see protos/leman/internal."""
