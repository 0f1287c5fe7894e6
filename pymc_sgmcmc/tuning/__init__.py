"""What is chosen for the user: coordinates, gradient estimator, step size, thinning."""
