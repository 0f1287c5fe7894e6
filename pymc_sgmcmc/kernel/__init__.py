"""Many updates as one compiled function."""
