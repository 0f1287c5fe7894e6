"""What numba and JAX need."""
