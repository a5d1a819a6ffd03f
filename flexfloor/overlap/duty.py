"""What a released rank does until the others have generated: it waits for orders and carries them out.

Invariants:
- All ranks of a lease carry out the same orders in the same sequence.
- A rank is in no collective while it waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from flexfloor import heartbeat
from flexfloor.overlap.event_log import EventLog
from flexfloor.overlap.events import Compare, Grow, Open, Order, Over, Train
from flexfloor.overlap.foreman import Foreman
from flexfloor.overlap.lease import Lease
from flexfloor.train.types import Sample

LOOK_AGAIN_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where a rank notes what it does."""

    leased: Callable[[int], AbstractContextManager[None]]
    """Opened while this rank belongs to a lease of the positions from a rung on."""
    waiting: Callable[[], AbstractContextManager[None]]
    """Opened within it while there is nothing to train."""


class Duty:
    """Of one rank in one step."""

    def __init__(
        self,
        position: int,
        num_positions: int,
        *,
        orders: EventLog,
        lease: Lease,
        compare: Callable[[Sequence[Sample]], Sequence[Sample]],
        account: Account,
        post: Callable[[], None],
    ):
        """Args:
        position: of this rank's replica in its expert group, of so many.
        orders: to its lease.
        compare: from samples to what can be trained of them; called on all ranks of the lease.
        post: writes down what this rank has to tell the others.
        """
        self._position, self._num_positions = position, num_positions
        self._orders, self._lease, self._compare = orders, lease, compare
        self._account, self._post = account, post
        self._pending: deque[Order] = deque()

    def do(self, foreman: Foreman | None, listen: Callable[[Foreman], None]) -> None:
        """Return when the lease is over, or would be if there were one.

        Args:
            foreman: on the position that says what is done.
            listen: tells it what became of the rollout.
        """
        with ExitStack() as membership:
            while not isinstance(order := self._next(foreman, listen), Over):
                if isinstance(order, Open | Grow):
                    if order.rung <= self._position:
                        membership.close()
                        membership.enter_context(self._member(order.rung))
                        self._widen(order)
                elif self._lease.rung is not None:
                    self._work(order, foreman)

    @contextmanager
    def _member(self, rung: int) -> Iterator[None]:
        positions = f"{rung} to {self._num_positions - 1}"
        told = f"early_update on positions {positions} while 0 to {rung - 1} generate"
        with heartbeat.stage(told), self._account.leased(rung):
            yield

    def _next(self, foreman: Foreman | None, listen: Callable[[Foreman], None]) -> Order:
        if self._look(foreman, listen):
            return self._pending.popleft()
        with heartbeat.waiting(), self._idle():
            while not self._look(foreman, listen):
                heartbeat.check_peers()
                time.sleep(LOOK_AGAIN_SECONDS)
        return self._pending.popleft()

    @contextmanager
    def _idle(self) -> Iterator[None]:
        with ExitStack() as noted:
            if self._lease.rung is not None:
                noted.enter_context(self._account.waiting())
            yield

    def _look(self, foreman: Foreman | None, listen: Callable[[Foreman], None]) -> bool:
        """Whether there is an order to carry out."""
        self._post()
        if foreman and not self._pending:
            listen(foreman)
            if order := foreman.next_order():
                self._orders.write(order)
        self._pending.extend(self._orders.read())
        return bool(self._pending)

    def _widen(self, order: Open | Grow) -> None:
        change = self._lease.open if isinstance(order, Open) else self._lease.grow
        change(order.rung, order.placement)

    def _work(self, order: Order, foreman: Foreman | None) -> None:
        if isinstance(order, Train):
            self._lease.train(order.samples)
        elif isinstance(order, Compare):
            compared = self._compare(order.samples)
            if foreman:
                foreman.compared(compared)
