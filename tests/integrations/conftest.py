"""What tests of this folder share."""

from helpers.interpreting import interpreted_unless_slow

__all__ = ["interpreted_unless_slow"]
