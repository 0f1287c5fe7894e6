"""Effective draws and R-hat, of many parameters at once."""
