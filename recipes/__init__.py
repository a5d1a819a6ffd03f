"""Readable training loops: each file reads as its algorithm."""
