"""The errors a user sees: each names the field, the value and what is allowed.

Everything a user can mend derives from `FlexFloorError`; the command line prints such an error
on one screen without a traceback. Broken invariants are `assert`s instead.
"""


class FlexFloorError(Exception):
    """Base of all errors that a user can mend."""

    place: str = ""
    """Rank, step and stage in which it was raised, where a rank has raised it."""


class ConfigError(FlexFloorError, ValueError):
    """A setting is unknown, of the wrong kind, out of range, or does not fit another one."""


class WeightsError(ConfigError):
    """Files of weights cannot be read or do not fit the model; the message names file and tensor."""


class DataError(FlexFloorError, ValueError):
    """A data file, row or prompt cannot be used."""


class RewardError(FlexFloorError):
    """A reward function raised, or returned something that is not a finite number."""


class CheckpointError(FlexFloorError):
    """A checkpoint cannot be written, or what is there cannot be read."""


class OutOfMemoryError(FlexFloorError):
    """A rank got no more memory; the message says what to lower."""


class RankError(FlexFloorError):
    """A rank failed, hung or was killed; the message names rank, stage and step."""

    rank_traceback: str = ""
    """Where the rank failed, or where it stood when its time was up."""
    stage: str = ""
    """Stage in which the rank was, where it died."""
    was_killed: bool = False
    """Whether SIGKILL ended the rank, as the kernel does when memory is short."""
