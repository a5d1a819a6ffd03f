"""Rewards: a task's own scorer or the user's function, run in threads beside generation."""
