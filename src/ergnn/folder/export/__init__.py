"""A trained model as a plain module, and in files that other programs read."""
