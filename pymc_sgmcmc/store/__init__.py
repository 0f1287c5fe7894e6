"""Chains on disk: what a killed run goes on from."""
