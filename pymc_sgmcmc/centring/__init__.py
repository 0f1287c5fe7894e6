"""Coordinates of hierarchies: one conditional-Gaussian map, its structures, and a map by hand."""
