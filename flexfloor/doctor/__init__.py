"""`flexfloor doctor`: what is installed, what this machine has, and what would run on it."""
