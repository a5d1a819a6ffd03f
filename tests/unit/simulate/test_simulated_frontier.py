"""Labels of the frontier's points do not touch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flexfloor.simulate.frontier import LABEL_HEIGHT, LABEL_WIDTH, label_heights

share = st.floats(0.0, 1.0)


@given(st.lists(st.tuples(share, share), max_size=14))
def test_no_two_labels_touch(points):
    heights = label_heights(points)
    for index, (x, y) in enumerate(points):
        assert heights[index] >= y
        for other in range(index):
            far = abs(points[other][0] - x) >= LABEL_WIDTH
            assert far or abs(heights[other] - heights[index]) >= LABEL_HEIGHT - 1e-9


def test_a_label_with_room_stands_at_its_point():
    assert label_heights([(0.1, 0.5), (0.1, 0.9), (0.8, 0.5)]) == [0.5, 0.9, 0.5]
    assert label_heights([(0.1, 0.5), (0.1, 0.5)]) == [0.5, 0.5 + LABEL_HEIGHT]
