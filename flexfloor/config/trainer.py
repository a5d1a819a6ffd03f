"""How long a run is, what it leaves behind, and how it goes on after a stop."""

from __future__ import annotations

from dataclasses import dataclass, field

from flexfloor.checks import require, require_choice, require_range

LOGGERS = ("console", "jsonl", "wandb")
RESUME_MODES = ("auto", "disable", "path")
NEVER = -1


@dataclass(kw_only=True)
class TrainerConfig:
    """The run as a whole; steps are training steps (one rollout and its update)."""

    project_name: str = "flexfloor"
    """W&B project, and folder under `runs/`"""
    experiment_name: str = "default"
    """W&B run name, and folder under the project's"""
    logger: list[str] = field(default_factory=lambda: ["console", "jsonl"])
    """any of `console`, `jsonl`, `wandb` (offline unless WANDB_MODE says otherwise)"""
    total_training_steps: int = 100
    """steps of the whole run, those before a resume included; 0 = warm start and validation only"""
    save_freq: int = NEVER
    """steps between checkpoints, the last step always has one; -1 = none, unless SIGTERM stops the run"""
    max_ckpt_to_keep: int | None = None
    """newest checkpoints that stay, older ones go when one is saved; null = all stay"""
    save_best: bool = False
    """save a checkpoint whenever a validation beats all before (mean over sources of val-core/*/mean@N), and
    keep the best one whatever `max_ckpt_to_keep` says; `checkpoints/best` leads to it"""
    test_freq: int = NEVER
    """steps between validations, the last step always has one; -1 = none during training"""
    val_before_train: bool = True
    """validate before the first step"""
    log_val_generations: int = 8
    """rows in the sample table of each validation"""
    default_local_dir: str = "runs/${trainer.project_name}/${trainer.experiment_name}"
    """folder of everything the run writes (names are filled in when the configuration is composed)"""
    resume_mode: str = "auto"
    """`auto` = latest whole checkpoint of `default_local_dir` if any, `disable` = start anew,
    `path` = `resume_from_path`"""
    resume_from_path: str | None = None
    """folder of one checkpoint, for resume_mode=path"""
    seed: int = 0
    """of the initial weights, the sampled tokens, and the generators of each rank"""

    def __post_init__(self) -> None:
        for name in ("project_name", "experiment_name"):
            require(bool(getattr(self, name).strip()), f"trainer.{name}", getattr(self, name), "a name")
        for name in self.logger:
            require_choice("trainer.logger", name, LOGGERS)
        for name in ("total_training_steps", "log_val_generations", "seed"):
            require_range(f"trainer.{name}", getattr(self, name), 0)
        for name in ("save_freq", "test_freq"):
            value = getattr(self, name)
            require(value >= 1 or value == NEVER, f"trainer.{name}", value, "1 or more, or -1 for never")
        if self.max_ckpt_to_keep is not None:
            require_range("trainer.max_ckpt_to_keep", self.max_ckpt_to_keep, 1)
        require(bool(self.default_local_dir), "trainer.default_local_dir", self.default_local_dir, "a folder")
        self._check_resume()

    def _check_resume(self) -> None:
        require_choice("trainer.resume_mode", self.resume_mode, RESUME_MODES)
        given = self.resume_from_path is not None
        allowed = "a checkpoint folder when trainer.resume_mode=path, and null otherwise"
        require(
            given == (self.resume_mode == "path"), "trainer.resume_from_path", self.resume_from_path, allowed
        )
