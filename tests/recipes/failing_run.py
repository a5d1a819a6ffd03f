"""A small run one of whose ranks fails: what the tests of failures share."""

import psutil

from flexfloor.launch.orphans import RUN_MARK

ELASTIC = [
    "elastic=on",
    "elastic.policy=greedy",
    "elastic.interval=2",
    "elastic.sequences_per_rank=12",
    "launch.hang_seconds=20",
    "sft.steps=0",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
]
KILL, RAISE = "os.kill(os.getpid(), signal.SIGKILL)", 'raise ZeroDivisionError("in the middle")'


def marked() -> list[int]:
    """Descendants of this process that a run has started."""
    found = []
    for each in psutil.Process().children(recursive=True):
        try:
            if RUN_MARK in each.environ() and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each.pid)
        except psutil.NoSuchProcess:
            continue
    return found
