"""Which prompts have all of their responses, wherever these were generated.

Invariants:
- A prompt is handed out once, when its last response has come, with its responses by index.
- Only prompts that were asked for are handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flexfloor.overlap.events import Scored


class CompleteGroups:
    """Collects the responses of a rollout."""

    def __init__(self, uids: Iterable[str], num_responses: int):
        """Args:
        uids: prompts that are waited for.
        num_responses: to each.
        """
        self._num_responses = num_responses
        self._found: dict[str, dict[int, Scored]] = {uid: {} for uid in uids}

    def add(self, responses: Sequence[Scored]) -> list[list[Scored]]:
        """The groups that these complete."""
        complete = []
        for each in responses:
            group = self._found.get(each.uid)
            if group is None:
                continue
            assert each.response_index not in group, f"{each.uid}/{each.response_index} came twice"
            group[each.response_index] = each
            if len(group) == self._num_responses:
                complete.append([group[index] for index in sorted(group)])
                del self._found[each.uid]
        return complete
