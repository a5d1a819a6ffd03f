"""How long responses are in general: what is expected of a prompt before it is known, and how surely.

The log-length of a response is the sum of a general mean, what its prompt adds, what the prompt adds in this
step (the policy has changed), and chance: a normal hierarchy, whose deviations are fitted to what was seen.
Truncated responses are censored: expectation-maximisation puts in what they would have been, or counts them
as runaways, whichever the others make likely. A few made-up prompts with wide deviations stand in the fit,
so that it holds for no prompt at all, for one, and for equal lengths.

Invariants:
- Deviations are finite and at least `LEAST_SD`; the share of runaways is above 0 and below 1.
- Without any record the prior is wide, and reaches from single tokens to the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flexfloor.schedule.normal import hazard, survival

LEAST_SD = 0.02
"""Deviations of log-length are never taken for smaller: 2 %."""
ROUNDS = 20
"""Of expectation-maximisation, at most; beyond, heavy truncation changes little."""
SETTLED = 1e-4
"""Rounds end when no number changes by more."""
BEFORE_LIMIT = 2.0
"""Logarithm of the limit over the length expected without any record."""
BETWEEN, WITHIN = 1.0, 0.6
"""Deviations without any record: of prompts, and of a prompt's responses."""
CHANGE_SHARE = 0.35
"""Variance of a prompt's change from step to step over that within it, without any record of changes."""
MADE_UP_PROMPTS, MADE_UP_RESPONSES, MADE_UP_CHANGES = 2.0, 4.0, 16.0
"""Weight of those numbers in the fit."""
RUNAWAYS, OF_RESPONSES = 0.5, 50.0
"""As many made-up runaways of as many made-up responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPrior:
    """Of log-lengths."""

    mean: float
    """Of prompts."""
    between: float
    """Deviation of prompts around it."""
    change: float
    """Deviation of a prompt's mean in one step around its own."""
    within: float
    """Deviation of a response around its prompt's mean in its step."""
    runaway: float
    """Share of responses that end by their limit alone."""
    prompts: float
    """Prompts that `mean` rests on, in effect."""

    @property
    def sd(self) -> float:
        """Deviation of the coming mean of a prompt that was never seen."""
        unsure = (self.between**2 + self.change**2) / self.prompts
        return math.sqrt(self.between**2 + self.change**2 + unsure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Records with the censored responses put in; arrays [N], and the posterior of each prompt's mean."""

    count: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    runaways: np.ndarray
    own_mean: np.ndarray
    own_variance: np.ndarray


def wide_prior(max_response_length: int) -> LengthPrior:
    """What is expected when nothing was ever seen."""
    return LengthPrior(
        mean=max(math.log(max_response_length) - BEFORE_LIMIT, 0.0),
        between=BETWEEN,
        change=math.sqrt(CHANGE_SHARE) * WITHIN,
        within=WITHIN,
        runaway=RUNAWAYS / OF_RESPONSES,
        prompts=1.0,
    )


def fit_prior(records: np.ndarray, max_response_length: int) -> LengthPrior:
    """The hierarchy that fits `records` (of `prompt_records.RECORD`, levels taken off)."""
    prior = wide_prior(max_response_length)
    if not len(records):
        return prior
    start, own = prior, None
    for _ in range(ROUNDS):
        last = prior
        own = complete(records, prior, own)
        prior = _maximise(records, own, start)
        if _distance(prior, last) < SETTLED:
            break
    return prior


def complete(records: np.ndarray, prior: LengthPrior, last: Completed | None = None) -> Completed:
    """Put in what truncated responses would have been, by the prior and by the last completion if any."""
    if last is None:
        mean, variance = _posterior(records, records["count"], records["log_mean"], prior)
    else:
        mean, variance = last.own_mean, last.own_variance
    sd = np.sqrt(variance + prior.within**2)
    z = (records["log_limit"] - mean) / sd
    ended = (1.0 - prior.runaway) * survival(z)
    natural = records["cut"] * ended / (prior.runaway + ended)
    count = records["count"] + natural
    beyond, square = mean + sd * hazard(z), sd**2 * np.clip(1.0 + z * hazard(z) - hazard(z) ** 2, 0.0, 1.0)
    share = natural / np.maximum(count, 1e-12)
    off = beyond - records["log_mean"]
    spread = records["spread"] + natural * square + records["count"] * share * off**2
    completed_mean = np.where(records["count"] > 0, records["log_mean"] + share * off, beyond)
    own_mean, own_variance = _posterior(records, count, completed_mean, prior)
    return Completed(
        count=count,
        mean=completed_mean,
        spread=spread,
        runaways=records["cut"] - natural,
        own_mean=own_mean,
        own_variance=own_variance,
    )


def _distance(some: LengthPrior, other: LengthPrior) -> float:
    names = ("mean", "between", "change", "within", "runaway")
    return max(abs(getattr(some, name) - getattr(other, name)) for name in names)


def _noise(records: np.ndarray, count: np.ndarray, prior: LengthPrior) -> np.ndarray:
    """Variance of a prompt's measured mean around its own, [N]; huge without responses."""
    visits = np.maximum(records["visits"], 1e-6)
    return prior.change**2 / visits + prior.within**2 / np.maximum(count, 1e-9)


def _posterior(
    records: np.ndarray, count: np.ndarray, mean: np.ndarray, prior: LengthPrior
) -> tuple[np.ndarray, np.ndarray]:
    share = prior.between**2 / (prior.between**2 + _noise(records, count, prior))
    return prior.mean + share * (mean - prior.mean), prior.between**2 * (1.0 - share)


def _maximise(records: np.ndarray, own: Completed, start: LengthPrior) -> LengthPrior:
    within = _within(records, own, start)
    change = _change(records, within)
    prior = LengthPrior(
        mean=start.mean, between=start.between, change=change, within=within, runaway=0.5, prompts=1.0
    )
    noise = _noise(records, own.count, prior)
    weights = 1.0 / (start.between**2 + noise)
    for _ in range(3):  # the weights that fit best depend on the deviation that they give
        mean, between = _between(weights, own.mean, noise, start)
        weights = 1.0 / (between**2 + noise)
    total = (records["count"] + records["cut"]).sum()
    return LengthPrior(
        mean=mean,
        between=between,
        change=change,
        within=within,
        runaway=float((RUNAWAYS + own.runaways.sum()) / (OF_RESPONSES + total)),
        prompts=1.0 + float(weights.sum() * between**2),
    )


def _within(records: np.ndarray, own: Completed, start: LengthPrior) -> float:
    """From responses to one prompt in one step; without any, the usual share of the whole variance."""
    usual = start.within**2 / (start.between**2 + start.change**2 + start.within**2)
    square = np.square(own.mean - own.mean.mean()).sum() + (own.spread / np.maximum(own.count, 1e-9)).sum()
    whole = (start.within**2 / usual + square) / (1.0 + len(records))
    freedom = np.maximum(own.count - records["visits"], 0.0).sum()
    square = MADE_UP_RESPONSES * usual * whole + own.spread.sum()
    return max(math.sqrt(square / (MADE_UP_RESPONSES + freedom)), LEAST_SD)


def _change(records: np.ndarray, within: float) -> float:
    changed = records[np.isfinite(records["change"])]
    squares = (changed["change"] ** 2 - within**2 * changed["change_noise"]).sum()
    square = MADE_UP_CHANGES * CHANGE_SHARE * within**2 + squares
    return max(math.sqrt(max(square / (MADE_UP_CHANGES + changed["change_visits"].sum()), 0.0)), LEAST_SD)


def _between(
    weights: np.ndarray, means: np.ndarray, noise: np.ndarray, start: LengthPrior
) -> tuple[float, float]:
    made_up = 1.0 / start.between**2
    mean = (made_up * start.mean + (weights * means).sum()) / (made_up + weights.sum())
    share = weights / weights.sum() * len(weights)
    square = MADE_UP_PROMPTS * start.between**2 + (share * ((means - mean) ** 2 - noise)).sum()
    variance = max(square / (MADE_UP_PROMPTS + len(weights)), LEAST_SD**2)
    return float(mean), math.sqrt(variance)
