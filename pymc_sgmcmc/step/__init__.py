"""PyMC's side of a sampler."""
