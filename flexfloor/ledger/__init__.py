"""The account of who holds each rank, when, and for what."""
