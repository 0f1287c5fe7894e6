"""A chain in one process."""
