"""What operators see: measures and their ways out."""
