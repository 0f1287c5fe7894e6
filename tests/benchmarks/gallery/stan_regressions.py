"""Posteriors of posteriordb for ``SUITE``: regressions."""
