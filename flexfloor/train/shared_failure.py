"""A failure on one rank while all write or read files of a model together, told by all of them.

Invariants:
- No rank waits for one that has failed: either all meet and learn of it, or the rank that failed ends at
  once, and with it the run (`flexfloor.launch`, `torchrun`).
- The message names the file or folder, the rank and the reason.
"""

from __future__ import annotations

import errno
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from megatron.core.dist_checkpointing.core import CheckpointingException
from torch.distributed.checkpoint.api import CheckpointException

from flexfloor.errors import CheckpointError, FlexFloorError

_FAILURES = (OSError, CheckpointError, CheckpointingException, CheckpointException)
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MAKE_SPACE = (
    "Free space there, lower trainer.max_ckpt_to_keep or set another trainer.default_local_dir; "
    "the checkpoints before this one are untouched, and the same command goes on from the newest"
)
"""What helps where no space is left for a checkpoint."""


def on_every_rank(
    action: Callable[[], Any],
    complaint: str,
    raises: type[FlexFloorError] = CheckpointError,
    make_space: str = MAKE_SPACE,
) -> Any:
    """Run `action`, which talks to no other rank, meet the others, and raise on all if it failed on any.

    Args:
        raises: what a user is to see; `action` may raise it too, and its message is then the reason.
        make_space: what helps where no space is left.

    Raises:
        CheckpointError, or `raises`: on every rank, with `complaint` and the reason of the first rank that
            failed.
    """
    failure: BaseException | None = None
    value = None
    try:
        value = action()
    except (*_FAILURES, raises, RuntimeError) as error:  # Torch's writer raises RuntimeError
        failure = error
    mine = None
    if failure is not None:
        in_own_words = isinstance(failure, raises) and raises is not CheckpointError
        mine = str(failure) if in_own_words else reason_of(failure, make_space)
    reasons: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(reasons, mine)
    for rank, reason in enumerate(reasons):
        if reason is not None:
            raise raises(f"{complaint} (rank {rank}): {reason}") from failure
    return value


def on_first_rank(
    action: Callable[[], Any],
    complaint: str,
    raises: type[FlexFloorError] = CheckpointError,
    make_space: str = MAKE_SPACE,
) -> None:
    """`on_every_rank` of an `action` of rank 0 alone."""
    on_every_rank(action if dist.get_rank() == 0 else lambda: None, complaint, raises, make_space)


@contextmanager
def at_once(complaint: str) -> Iterator[None]:
    """Raise what fails in the block as `CheckpointError` on this rank alone, without meeting the others.

    For a block in which the ranks already wait for one another: there a rank that failed cannot tell them.
    """
    try:
        yield
    except CheckpointError:
        raise
    except RuntimeError as error:
        if _behind(error) is None:
            raise  # of a collective, whose own message says more
        raise _here(complaint, error) from error
    except _FAILURES as error:
        raise _here(complaint, error) from error


def _here(complaint: str, error: BaseException) -> CheckpointError:
    return CheckpointError(f"{complaint} (rank {dist.get_rank()}): {reason_of(error)}")


def reason_of(failure: BaseException, make_space: str = MAKE_SPACE) -> str:
    """What a user is told of `failure`, with `make_space` where no space is left."""
    if isinstance(failure, CheckpointException):  # Torch tells every rank what failed on which
        of_ranks = ((rank, error) for rank, (error, _) in failure.failures.items())
        return "; ".join(f"rank {rank}: {reason_of(error, make_space)}" for rank, error in of_ranks)
    of_file = _behind(failure)
    cause = of_file or failure
    # Upstream lists every key that does not fit: the first lines say enough for one screen.
    text = textwrap.shorten(f"{type(cause).__name__}: {cause}", 600)
    return f"{text}. {make_space}" if of_file and of_file.errno in _NO_SPACE else text


def _behind(failure: BaseException | None) -> OSError | None:
    """The operating system's answer behind `failure`; Torch's writer hides it one level down."""
    if failure is None or isinstance(failure, OSError):
        return failure
    return _behind(failure.__cause__ or failure.__context__)
