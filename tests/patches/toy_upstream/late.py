"""Imports a target by value; the tests import this module while a patch holds."""

from toy_upstream.functions import double as late_double  # noqa: F401
