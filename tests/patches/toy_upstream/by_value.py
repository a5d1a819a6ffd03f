"""Imports a target by value and under another name."""

from toy_upstream.functions import double as twice  # noqa: F401
