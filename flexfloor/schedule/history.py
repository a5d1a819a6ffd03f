"""What past steps have shown of how long each prompt's responses become.

Responses to the same prompt resemble each other, over steps too: one earlier response predicts the coming
ones with a correlation of about 0.66, the mean of eight with 0.76. A prompt that was never seen is expected
as prompts are in general; one that was is drawn towards that by as much as what was seen leaves open. The
policy changes: older responses count less, a common drift of all prompts is followed by the `level`, and a
prompt that is suddenly nothing like itself is begun anew.

Invariants:
- The same calls with the same numbers give the same bits, however often predictions are asked for in between.
- Predictions are finite whatever was observed.
- There are never more than `max_prompts` prompts.
- `from_state` of `state` goes on as the history itself would have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flexfloor.schedule.beliefs import Beliefs
from flexfloor.schedule.length_law import log_of_length
from flexfloor.schedule.length_prior import LengthPrior, complete, fit_prior
from flexfloor.schedule.prompt_records import FIELDS, RECORD, PromptRecords, older_part

KEPT = 0.7
"""Part of what earlier visits weigh that is left at the next one."""
SURPRISE = 4.0
"""A visit so many deviations off begins the prompt anew."""
LATEST = 4096
"""Prompts seen last that say how prompts are in general."""
LEVEL_GAIN, LEVEL_PROMPTS = 0.8, 16
"""Part of a step's common change that the level takes, for many prompts; half of that for so many."""
ROUNDS = 3
"""In which truncated responses of a prompt are put in."""


class LengthHistory:
    """Lengths of past responses by the uid of their prompt.

    Args:
        max_response_length: tokens that a response may have, for what is expected before anything was seen.
        max_prompts: the most prompts that are kept.
    """

    def __init__(self, max_response_length: int, max_prompts: int = 200_000) -> None:
        self._max_response_length = max_response_length
        self._records = PromptRecords(max_prompts)
        self._level = 0.0
        self._step = -1
        self._general = fit_prior(np.zeros(0, dtype=RECORD), max_response_length)
        self._fitted: LengthPrior | None = self._general

    def __len__(self) -> int:
        return len(self._records)

    def observe(self, uid: str, lengths: Sequence[int], truncated: Sequence[bool], step: int) -> None:
        """Take in responses to one prompt.

        Args:
            uid: of the prompt.
            lengths: tokens of each response.
            truncated: whether each met its limit, which only says that it would have been longer.
            step: of training, the same for all prompts of a rollout.
        """
        if not len(lengths):
            return
        if step != self._step:
            self._begin(step)
        tokens, cut = np.asarray(lengths, dtype=float), np.asarray(truncated, dtype=bool)
        logs, limits = log_of_length(tokens[~cut]), np.log(np.maximum(tokens[cut], 1.0))
        record = self._records.touch(uid)
        record["log_mean"] += self._level - record["level"]
        record["level"] = self._level
        if record["step"] != step:
            _weaken(record, KEPT)
            self._compare(record, logs, limits)
            record["visits"] += 1.0
            record["fresh"] = 0.0
        record["step"] = step
        _add(record, logs, limits)
        self._fitted = None

    def predict(self, uids: Sequence[str]) -> Beliefs:
        """What to expect of the coming responses to each prompt, in the order of `uids`."""
        prior = self.prior()
        mean, sd = np.full(len(uids), prior.mean), np.full(len(uids), prior.sd)
        known, records = self._records.select(uids)
        if known.size:
            records = self._levelled(records)
            own = None
            for _ in range(ROUNDS):
                own = complete(records, prior, own)
            assert own is not None
            mean[known], sd[known] = own.own_mean, np.sqrt(own.own_variance + prior.change**2)
        return Beliefs(log_mean=mean, log_sd=sd, within=prior.within, runaway=prior.runaway)

    def prior(self) -> LengthPrior:
        """How prompts are in general, by those seen last."""
        if self._fitted is None:
            self._fitted = self._fit()
        return self._fitted

    def state(self) -> dict[str, Any]:
        """Plain data and arrays, for `from_state`."""
        records = self._records.latest(len(self))
        return {
            "uids": self._records.uids(),
            "records": {name: records[name].copy() for name in FIELDS},
            "level": self._level,
            "step": self._step,
            "general": {name: getattr(self._general, name) for name in LengthPrior.__slots__},
        }

    def settled(self) -> tuple[list[str], np.ndarray]:
        """Uids and records of all prompts, the least recently seen first, with the means expected now."""
        return self._records.uids(), self._levelled(self._records.latest(len(self)))

    @classmethod
    def from_state(
        cls, state: dict[str, Any], max_response_length: int, max_prompts: int = 200_000
    ) -> LengthHistory:
        """The history whose `state` this was; of more than `max_prompts`, the ones seen last."""
        history = cls(max_response_length, max_prompts)
        records = np.zeros(len(state["uids"]), dtype=RECORD)
        for name in FIELDS:
            records[name] = state["records"][name]
        history._records.fill(state["uids"], records)
        history._level, history._step = state["level"], state["step"]
        history._general = LengthPrior(**state["general"])
        history._fitted = None
        return history

    def _begin(self, step: int) -> None:
        """Close the last step: its common change stays, and the next one is judged by what is known now."""
        rise = self._rise()
        self._level += rise
        self._records.shift(self._step, rise)
        self._step = step
        self._general = self._fit()

    def _rise(self) -> float:
        """What the level is to gain by the common change of the last step's prompts."""
        records = self._records.latest(LATEST)
        changes = records["change"][(records["step"] == self._step) & np.isfinite(records["change"])]
        if self._step < 0 or not changes.size:
            return 0.0
        return LEVEL_GAIN * changes.size / (changes.size + LEVEL_PROMPTS) * float(np.median(changes))

    def _fit(self) -> LengthPrior:
        return fit_prior(self._levelled(self._records.latest(LATEST)), self._max_response_length)

    def _levelled(self, records: np.ndarray) -> np.ndarray:
        """The records with their means as they would be at the level that the last step gives."""
        rise, last = self._rise(), records["step"] == self._step
        records = records.copy()
        records["log_mean"] += (
            self._level - records["level"] + rise * np.where(last, older_part(records), 1.0)
        )
        return records

    def _compare(self, record: np.void, logs: np.ndarray, limits: np.ndarray) -> None:
        """Note how far a visit is from what was kept, and drop that where they have nothing in common.

        Of a visit most of which was cut, only a lower bound of the change is known, and it is not noted.
        """
        record["change"] = np.nan
        if record["count"] == 0:
            return
        mostly_cut = limits.size > logs.size
        change = float((limits if mostly_cut else logs).mean()) - float(record["log_mean"])
        visits = 1.0 + 1.0 / record["visits"]
        noise = 1.0 / (logs.size + limits.size) + 1.0 / record["count"]
        most = SURPRISE * math.sqrt(visits * self._general.change**2 + noise * self._general.within**2)
        if change > most or (change < -most and not mostly_cut):
            _weaken(record, 0.0)
        if not mostly_cut:
            record["change"] = min(max(change, -most), most)
            record["change_visits"], record["change_noise"] = visits, noise


def _weaken(record: np.void, kept: float) -> None:
    """Let what a record holds count for the part `kept` of what it did."""
    for name in ("count", "visits", "spread", "cut"):
        record[name] *= kept


def _add(record: np.void, logs: np.ndarray, limits: np.ndarray) -> None:
    """Add log-lengths that ended, and the log-limits of those that were cut."""
    if logs.size:
        total = record["count"] + logs.size
        record["log_mean"] += logs.size / total * (float(logs.mean()) - record["log_mean"])
        record["spread"] += float(np.square(logs - logs.mean()).sum())
        record["count"] = total
        record["fresh"] += logs.size
    if limits.size:
        total = record["cut"] + limits.size
        record["log_limit"] += limits.size / total * (float(limits.mean()) - record["log_limit"])
        record["cut"] = total
