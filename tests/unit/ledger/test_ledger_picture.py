"""The picture: what is drawn where, and that no labels touch."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexfloor.ledger.gantt import busy_bars, early_bars, idle_bars, released_bars
from flexfloor.ledger.labels import spread_labels
from flexfloor.ledger.overview import EARLY, IDLE, sample_states
from flexfloor.ledger.panels import Curves
from flexfloor.ledger.strip import place_labels, stage_spans
from flexfloor.ledger.timeline import draw_timeline
from flexfloor.ledger.types import EARLY_UPDATE, Interval, State, StepRecord

GENERATING, SHRINKING, TRAINING, WAITING = 1, 2, 3, 4  # codes of the overview


def step(number: int, opened_s: float, ranks: int = 2) -> tuple[StepRecord, ...]:
    """8 s: rollout to 4 (the last rank idle from 2), reward to 5, update to 8."""
    return tuple(
        StepRecord(
            rank=rank,
            step=number,
            opened_s=opened_s,
            seconds=8.0,
            intervals=(
                Interval(
                    start_s=0.0,
                    end_s=4.0,
                    state=State.GENERATING,
                    stage="rollout",
                    idle_from_s=2.0 if rank == ranks - 1 else None,
                ),
                Interval(start_s=4.0, end_s=5.0, state=State.WAITING, stage="reward"),
                Interval(start_s=5.0, end_s=8.0, state=State.TRAINING, stage="update"),
            ),
        )
        for rank in range(ranks)
    )


def test_bars_are_the_intervals_at_their_place_in_the_run() -> None:
    steps, starts = [step(0, 0.0), step(1, 10.0)], [0.0, 10.0]
    bars = busy_bars(steps, starts)
    assert bars[State.GENERATING] == [(0, 0.0, 4.0), (1, 0.0, 2.0), (0, 10.0, 4.0), (1, 10.0, 2.0)]
    assert bars[State.TRAINING] == [(0, 5.0, 3.0), (1, 5.0, 3.0), (0, 15.0, 3.0), (1, 15.0, 3.0)]
    assert bars[State.SHRINKING] == []
    assert idle_bars(steps, starts) == [(1, 2.0, 2.0), (1, 12.0, 2.0)]


SHORT = 2**-10


def released_step(state: State, stage: str) -> tuple[StepRecord, ...]:
    """One rank: generating to 1, a shrink of SHORT seconds, then `state` in `stage` to 8."""
    parts = [(0.0, 1.0, State.GENERATING, "rollout"), (1.0, 1 + SHORT, State.SHRINKING, "rollout")]
    intervals = [
        Interval(start_s=begin, end_s=end, state=held, stage=name)
        for begin, end, held, name in [*parts, (1 + SHORT, 8.0, state, stage)]
    ]
    return (StepRecord(rank=0, step=0, opened_s=0.0, seconds=8.0, intervals=tuple(intervals)),)


@pytest.mark.parametrize(
    ("state", "stage", "is_released"),
    [
        (State.WAITING, "rollout", True),
        (State.WAITING, "validation", True),
        (State.WAITING, "reward", False),
        (State.WAITING, EARLY_UPDATE, False),
        (State.TRAINING, "update", False),
    ],
)
def test_a_rank_that_left_a_generation_is_told_from_one_that_waits(
    state: State, stage: str, is_released: bool
) -> None:
    steps, bar = [released_step(state, stage)], (0, 3 + SHORT, 7 - SHORT)
    assert released_bars(steps, [2.0]) == ([bar] if is_released else [])
    assert busy_bars(steps, [2.0])[state] == ([] if is_released else [bar])


def test_early_training_is_told_from_what_all_ranks_train() -> None:
    steps, bar = [released_step(State.TRAINING, EARLY_UPDATE)], (0, 3 + SHORT, 7 - SHORT)
    assert early_bars(steps, [2.0]) == [bar]
    assert busy_bars(steps, [2.0])[State.TRAINING] == released_bars(steps, [2.0]) == []
    assert early_bars([released_step(State.TRAINING, "update")], [2.0]) == []
    assert sample_states(steps, num_columns=2).tolist() == [[EARLY, EARLY]]


def test_the_picture_has_the_shade_of_early_training_where_it_was(tmp_path: Path) -> None:
    from matplotlib.image import imread

    shade = np.array([0x00, 0x66, 0x4B]) / 255

    def share(state: State, stage: str) -> float:
        picture = draw_timeline([released_step(state, stage)], tmp_path / "timeline.png")
        return float((np.abs(imread(picture)[..., :3] - shade).max(axis=-1) < 0.02).mean())

    swatch = share(State.TRAINING, "update")  # of the legend
    assert 0 < swatch < 0.002
    # 7 of 8 s of a row that is 0.9 of the picture's width.
    assert share(State.TRAINING, EARLY_UPDATE) > 50 * swatch


def test_shrinks_shorter_than_a_pixel_are_seen(tmp_path: Path) -> None:
    from matplotlib.image import imread

    edges = [0.37 * (number + 1) for number in range(20)]
    intervals, before = [], 0.0
    for edge in edges:
        for end, state in ((edge, State.GENERATING), (edge + SHORT, State.SHRINKING)):
            intervals.append(Interval(start_s=before, end_s=end, state=state, stage="rollout"))
            before = end
    record = StepRecord(rank=0, step=0, opened_s=0.0, seconds=before, intervals=tuple(intervals))
    pixels = imread(draw_timeline([(record,)], tmp_path / "timeline.png"))[180:, :, :3]
    orange = np.abs(pixels - np.array([0xD5, 0x5E, 0x00]) / 255).max(axis=-1) < 0.2
    columns = (orange.sum(axis=0) > 20).astype(int)
    assert (np.diff(columns) == 1).sum() == len(edges)


def test_stages_of_rank_0() -> None:
    assert stage_spans(step(0, 0.0), 10.0) == [
        ("rollout", 10.0, 14.0),
        ("reward", 14.0, 15.0),
        ("update", 15.0, 18.0),
    ]


def test_overview_shows_the_state_that_held_most_of_a_column() -> None:
    codes = sample_states([step(0, 0.0), step(1, 10.0)], num_columns=9)  # 2 s each
    wait = [WAITING, TRAINING]  # 4-6 s: one second each, the first of equals wins
    assert codes[0, :5].tolist() == [GENERATING, GENERATING, codes[0, 2], TRAINING, 0]
    assert codes[1, :5].tolist() == [GENERATING, IDLE, codes[1, 2], TRAINING, 0]
    assert codes[0, 2] in wait and codes[1, 2] in wait
    assert codes[:, 5:].tolist() == codes[:, :4].tolist()


def test_a_column_that_is_mostly_between_steps_stays_blank() -> None:
    """Of the middle third of 22 s, 7.3 to 14.7, 0.7 s belong to either step and 6 s to none."""
    codes = sample_states([step(0, 0.0), step(1, 14.0)], num_columns=3)
    assert codes[0].tolist() == [GENERATING, 0, GENERATING]


@given(
    widths=st.lists(st.floats(1, 80), min_size=1, max_size=8),
    seed=st.integers(0, 10**6),
    gap=st.floats(0, 10),
)
def test_labels_never_touch_nor_leave_the_bounds(widths: list[float], seed: int, gap: float) -> None:
    edges = sorted(random.Random(seed).uniform(0, 500) for _ in range(2 * len(widths)))
    stretches = [
        (begin, begin + 0.1 + end - begin) for begin, end in zip(edges[::2], edges[1::2], strict=True)
    ]
    places = spread_labels(stretches, widths, (0.0, 500.0), gap)
    if places is None:
        assert sum(widths) + gap * (len(widths) - 1) > 500 - 1e-6
        return
    lefts = np.array(places) - np.array(widths) / 2
    rights = np.array(places) + np.array(widths) / 2
    assert lefts[0] >= -1e-6 and rights[-1] <= 500 + 1e-6
    assert (lefts[1:] - rights[:-1] >= gap - 1e-6).all()


def test_labels_with_room_stay_and_a_long_stretch_gives_way() -> None:
    assert spread_labels([(0, 100), (200, 300)], [40, 40], (0, 400), gap=5) == [50, 250]
    short, long = spread_labels([(100, 110), (110, 200)], [60, 60], (0, 400), gap=10)
    assert long - short == pytest.approx(70)
    assert abs(short - 105) < abs(long - 155)  # both wanted their middle, the long stretch moved more


def test_where_there_is_no_room_the_shortest_goes_unnamed() -> None:
    places = place_labels([(0, 50), (50, 52), (52, 100)], [40, 40, 40], (0, 100))
    assert places[1] is None
    assert places[0] is not None and places[2] is not None


CURVES = Curves(
    reward={1: 0.1, 2: 0.4}, validation={0: 0.1, 2: 0.5}, length_p50={1: 9.0}, length_p90={1: 30.0}
)


@pytest.mark.parametrize(("num_steps", "ranks"), [(1, 1), (2, 4), (9, 4), (9, 70)])
@pytest.mark.parametrize("curves", [None, CURVES])
def test_pictures_of_all_sizes(tmp_path: Path, num_steps: int, ranks: int, curves: Curves | None) -> None:
    from matplotlib.image import imread

    steps = [step(number, number * 10.0, ranks) for number in range(num_steps)]
    pixels = imread(draw_timeline(steps, tmp_path / "timeline.png", curves=curves))
    assert pixels.shape[1] == 1650
    assert 300 < pixels.shape[0] < 2000
    blue = np.abs(pixels[..., :3] - np.array([0x00, 0x72, 0xB2]) / 255).max(axis=-1) < 0.02
    assert blue.mean() > 0.02  # generating is there
    assert (pixels[:, :10, :3] == 1).all()  # nothing is cut off at the left edge


@pytest.mark.parametrize("num_steps", [3, 7])
def test_text_in_the_picture_does_not_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_steps: int
) -> None:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    boxes: list = []

    def save(figure: Figure, path: Path) -> None:
        figure.canvas.draw()
        texts = [text for text in set(figure.findobj(Text)) if text.get_text() and text.get_visible()]
        boxes.extend((text.get_text(), text.get_window_extent()) for text in texts)

    monkeypatch.setattr(Figure, "savefig", save)
    steps = [step(n, n * 10.0, 16) for n in range(8)]
    draw_timeline(steps, tmp_path / "t.png", curves=CURVES, num_steps=num_steps)
    named = {text for text, _ in boxes}
    assert num_steps == 7 or "reward" in named
    assert {"step 7", "rollout", "update", "rank 15", "Who held each rank", "p90"} <= named
    for index, (text, box) in enumerate(boxes):
        for other, second in boxes[index + 1 :]:
            assert not box.overlaps(second), f"{text!r} touches {other!r}"


def test_importing_the_ledger_loads_neither_matplotlib_nor_torch() -> None:
    code = (
        "import sys, flexfloor.ledger.timeline, flexfloor.ledger.store, flexfloor.ledger.metrics\n"
        "raise SystemExit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
