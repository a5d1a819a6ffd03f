"""Ranks: started, watched, ended, and told apart when one fails.

What a command makes of them stands in `flexfloor.jobs`.
"""

from flexfloor.launch.start import preload, run_ranks, run_this_rank

__all__ = ["preload", "run_ranks", "run_this_rank"]
