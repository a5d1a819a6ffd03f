"""Generation on the training model itself."""
