"""Posteriors of posteriordb for ``SUITE``: time series, hidden states and equations."""
