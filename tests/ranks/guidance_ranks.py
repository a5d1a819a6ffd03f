"""A schedule's guidance for tests, of known or of learned lengths and of costs that are given."""

import dataclasses

from flexfloor.rollout.guide import Guidance
from flexfloor.schedule.cost import PassLoad
from flexfloor.schedule.history import LengthHistory
from flexfloor.schedule.outlook import KnownLengths, LearnedLengths


@dataclasses.dataclass(frozen=True)
class Costs:
    """A pass that costs `a_row` for each row beside one second, and shrinks of `a_shrink` each."""

    pass_error = 0.0

    a_row: float = 0.1
    a_shrink: float = 0.01
    an_alone: float = 0.01

    def pass_seconds(self, load: PassLoad):
        return 1.0 + self.a_row * load.rows + 0.001 * load.context

    def alone_seconds(self, load: PassLoad):
        return self.an_alone + self.a_row * load.rows

    def shrink_seconds(self, before, after, moved_tokens):
        return self.a_shrink

    def train_seconds(self, tokens):
        return 0.0


def known(factor, **more):
    """Guidance by the forced lengths times `factor`."""

    def make(requests):
        lengths = {(r.uid, r.response_index): int(factor * r.forced_length) for r in requests}
        return told(KnownLengths(lengths), **more)

    return make


def learned(**more):
    """Guidance by a history that saw each prompt once, at other lengths."""

    def make(requests):
        history = LengthHistory(max_response_length=30)
        for r in requests:
            history.observe(r.uid, [r.forced_length + 2], [False], step=0)
        uids = list(dict.fromkeys(r.uid for r in requests))
        return told(LearnedLengths(history.predict(uids), uids), **more)

    return make


def told(outlook, objective="occupancy", max_slowdown=0.5, rebalances=True, costs=Costs(), explores=False):
    return Guidance(
        outlook=outlook,
        costs=costs,
        objective=objective,
        max_slowdown=max_slowdown,
        rebalances=rebalances,
        explores=explores,
    )
