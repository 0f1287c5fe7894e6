"""Rows of data that stay on disk."""
