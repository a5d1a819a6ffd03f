"""An upstream of its own for the tests of the patch manager."""

__version__ = "1.0"
