"""A reward that no model can learn and that is never the same for all: for tests that need a gradient."""

import random
import time
import zlib


def compute_score(data_source, solution_str, ground_truth, extra_info=None, *, wait=0.0, equal_share=0.0):
    """A number from 0 to 1 that is a function of the response alone.

    Args:
        wait: most seconds that it takes.
        equal_share: of the prompts, by their answer, those whose responses all score the same.
    """
    time.sleep(random.random() * wait)
    if zlib.crc32(str(ground_truth).encode()) % 1000 < 1000 * equal_share:
        return 0.5
    return zlib.crc32(solution_str.encode()) % 1000 / 1000
