"""Learning rates of the first steps by hand."""

from types import SimpleNamespace

import pytest

from flexfloor.train.config import OptimConfig
from flexfloor.train.optimizer import build_scheduler


def _rates(optim, steps):
    optimizer = SimpleNamespace(param_groups=[{"wd_mult": 1.0}])
    scheduler, rates = build_scheduler(optimizer, optim), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step(increment=1)
    return rates


@pytest.mark.parametrize(
    ("optim", "rates"),
    [
        (OptimConfig(lr=0.5), [0.5, 0.5, 0.5]),
        # no step is lost to a rate of 0
        (OptimConfig(lr=0.4, lr_warmup_steps=3), [0.1, 0.2, 0.3, 0.4, 0.4]),
        (
            OptimConfig(lr=0.4, min_lr=0.1, lr_decay_style="linear", lr_decay_steps=3),
            [0.4, 0.3, 0.2, 0.1, 0.1],
        ),
        (
            OptimConfig(lr=0.4, lr_decay_style="cosine", lr_decay_steps=5, lr_warmup_steps=1),
            [0.2, 0.4, 0.4 * (2 + 2**0.5) / 4, 0.2, 0.4 * (2 - 2**0.5) / 4, 0.0],
        ),
    ],
)
def test_rates_of_the_first_steps(optim, rates):
    assert _rates(optim, len(rates)) == pytest.approx(rates, abs=1e-15)
