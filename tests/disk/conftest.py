"""What tests of this folder share."""

from helpers.interpreting import interpreted_modules

__all__ = ["interpreted_modules"]
