"""A PyMC model read as a density."""
