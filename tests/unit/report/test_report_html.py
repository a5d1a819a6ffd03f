"""The page as a file: safe whatever the data say, alone, bounded, and the same for the same run."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from flexfloor.ledger.types import Interval, State, StepRecord
from flexfloor.report import page as page_module
from flexfloor.report.data import gather
from flexfloor.report.page import SCRIPTS, embedded, render
from flexfloor.track.lengths import LengthLog, StepLengths

EVIL = "</script><script>alert(1)</script><!-- & \u2028 ${data} $$ \\"


class Elements(HTMLParser):
    """Elements of a page, and the text of its scripts by type, as a browser would read them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: dict[str, str] = {}
        self.title = ""
        self._type: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._type = dict(attrs).get("type") if tag == "script" else tag

    def handle_endtag(self, tag: str) -> None:
        self._type = None

    def handle_data(self, data: str) -> None:
        if self._type == "title":
            self.title += data
        elif self._type:
            self.scripts[self._type] = self.scripts.get(self._type, "") + data


def a_step(number: int, num_ranks: int = 1) -> list[StepRecord]:
    rollout = Interval(start_s=0.0, end_s=2.0, state=State.GENERATING, stage=EVIL)
    return [
        StepRecord(rank=rank, step=number, opened_s=2.0 * number, seconds=2.0, intervals=(rollout,))
        for rank in range(num_ranks)
    ]


def a_page(folder: Path, uid: str = EVIL) -> str:
    log = LengthLog(folder / "lengths.jsonl")
    log.write(
        0,
        StepLengths(
            uid=[uid],
            response_index=[0],
            num_tokens=[3],
            truncated=[False],
            predicted_p10=[1.0],
            predicted_p50=[2.0],
            predicted_p90=[4.0],
        ),
    )
    log.close()
    return render(gather(folder, [a_step(0)], {0: {"critic/score/mean": 0.5}}))


def read(text: str) -> Elements:
    elements = Elements()
    elements.feed(text)
    return elements


def test_no_name_can_become_markup(tmp_path: Path) -> None:
    folder = tmp_path / "<b>run&amp;${data}"
    elements = read(a_page(folder))
    harmless = read(a_page(tmp_path / "run", uid="a"))
    assert elements.tags == harmless.tags
    data = json.loads(elements.scripts["application/json"])
    assert elements.title == "<b>run&amp;${data} - FlexFloor" and data["run"] == "<b>run&amp;${data}"
    assert data["lengths"]["predicted"]["points"][0]["uid"] == EVIL
    assert data["timeline"]["kinds"][0]["stage"] == EVIL


def test_embedded_data_come_back_and_hold_no_angle_bracket() -> None:
    text = embedded({"a": EVIL, "b": [1, 2.5, None, True], "c": State.WAITING})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": EVIL, "b": [1, 2.5, None, True], "c": "waiting"}


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_json_has_no_word_for_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        embedded([value])


def test_the_page_asks_for_nothing(tmp_path: Path) -> None:
    elements = read(a_page(tmp_path))
    links = [value for name, value in elements.attributes if name in ("src", "href", "srcset", "action")]
    assert links == ["data:,"]
    [policy] = [value for _, value in elements.attributes if value and "default-src" in value]
    assert policy.startswith("default-src 'none';")
    style = elements.scripts["style"]
    assert "url(" not in style and "@import" not in style
    module = elements.scripts["module"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|\bfetch\(|\bimport\b|XMLHttpRequest", module)


def test_every_script_is_in_the_page_once(tmp_path: Path) -> None:
    folder = Path(page_module.__file__).parent / "web"
    assert {path.name for path in folder.glob("*.js")} == set(SCRIPTS)
    module = read(a_page(tmp_path)).scripts["module"]
    assert all(module.count((folder / name).read_text().strip()) == 1 for name in SCRIPTS)


def test_a_page_of_a_run_without_lengths_or_metrics_says_so(tmp_path: Path) -> None:
    data = json.loads(read(render(gather(tmp_path, [a_step(0)], {}))).scripts["application/json"])
    assert data["lengths"] is None
    assert "has no lengths.jsonl" in data["notes"]["lengths"][0]
    assert data["curves"] == {name: [] for name in ("reward", "validation", "p50", "p90", "longest")}


def test_long_curves_are_thinned_and_told(tmp_path: Path) -> None:
    metrics = {step: {"critic/score/mean": float(step)} for step in range(2500)}
    page = gather(tmp_path, [a_step(0)], metrics)
    reward = page.curves["reward"]
    assert (len(reward), reward[0], reward[-1]) == (1000, (0, 0.0), (2499, 2499.0))
    assert page.notes["curves"] == ["1,000 of 2,500 steps are drawn, evenly spread."]
