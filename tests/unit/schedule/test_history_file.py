"""A length history as a file: another run begins with what was written, and nothing else is taken for one."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from length_world import World, observe

from flexfloor.errors import DataError, FlexFloorError
from flexfloor.schedule.history import LengthHistory
from flexfloor.schedule.history_file import read_history, write_history

LIMIT = 4096
ASKED = [*map(str, range(40)), "never"]


@pytest.fixture
def history():
    world = World(seed=0, num_prompts=40, limit=LIMIT, at_limit=0.05)
    history = LengthHistory(LIMIT)
    for step in range(3):
        observe(history, world, world.visit(4), step)
    return history


def test_what_is_read_predicts_what_was_written(tmp_path, history):
    write_history(tmp_path / "lengths.parquet", history)
    again = read_history(tmp_path / "lengths.parquet", LIMIT)
    some, other = history.predict(ASKED), again.predict(ASKED)
    assert np.array_equal(some.log_mean, other.log_mean) and np.array_equal(some.log_sd, other.log_sd)
    assert (some.within, some.runaway) == (other.within, other.runaway)
    assert [path.name for path in tmp_path.iterdir()] == ["lengths.parquet"]


def test_a_run_that_begins_with_it_starts_at_step_0(tmp_path, history):
    write_history(tmp_path / "lengths.parquet", history)
    again = read_history(tmp_path / "lengths.parquet", LIMIT, max_prompts=10)
    assert again.state()["uids"] == history.state()["uids"][-10:]
    visits = again.state()["records"]["visits"][-1]
    again.observe("39", again.predict(["39"]).quantile(0.5, LIMIT), [False], 0)
    assert again.state()["records"]["visits"][-1] == pytest.approx(0.7 * visits + 1)


def test_no_prompt_at_all(tmp_path):
    write_history(tmp_path / "lengths.parquet", LengthHistory(LIMIT))
    assert len(read_history(tmp_path / "lengths.parquet", LIMIT)) == 0


def rewritten(path, change):
    table = pyarrow.parquet.read_table(path).to_pydict()
    change(table)
    pyarrow.parquet.write_table(pyarrow.table(table), path)


def without_spread(table):
    del table["spread"]


def not_a_number(table):
    table["log_mean"][2] = float("nan")


def missing_number(table):
    table["count"][1] = None


def negative(table):
    table["visits"][0] = -1.0


def huge(table):
    table["log_limit"][0] = 1e30


def words(table):
    table["cut"] = ["many"] * len(table["cut"])


def twice(table):
    table["uid"][3] = table["uid"][0]


def number_for_uid(table):
    table["uid"] = list(range(len(table["uid"])))


@pytest.mark.parametrize(
    "change, says",
    [
        (without_spread, "no column spread"),
        (not_a_number, "nan in row 3 of its column log_mean"),
        (missing_number, "in row 2 of its column count"),
        (negative, "-1.0 in row 1 of its column visits"),
        (huge, "1e+30 in row 1 of its column log_limit"),
        (words, "string in its column cut"),
        (twice, "'0' in row 4 of its column uid"),
        (number_for_uid, "0 in row 1 of its column uid"),
    ],
)
def test_what_is_no_history_is_named(tmp_path, history, change, says):
    path = tmp_path / "lengths.parquet"
    write_history(path, history)
    rewritten(path, change)
    with pytest.raises(DataError) as raised:
        read_history(path, LIMIT)
    assert str(raised.value).startswith(f"schedule.history_path: {path} is not a length history")
    assert says in str(raised.value)


def test_damaged_files_are_named(tmp_path, history):
    path = tmp_path / "lengths.parquet"
    write_history(path, history)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(whole[: rng.integers(0, len(whole))] if rng.random() < 0.5 else whole)
        for at in rng.integers(0, max(len(damaged), 1), 20) if damaged else ():
            damaged[at] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            beliefs = read_history(path, LIMIT).predict(ASKED)
        except DataError as error:
            assert str(error).startswith(f"schedule.history_path: {path}")
        else:
            assert np.isfinite(beliefs.log_mean).all()
    for wrong in (tmp_path / "none.parquet", tmp_path):
        with pytest.raises(DataError, match=r"schedule\.history_path"):
            read_history(wrong, LIMIT)


def test_a_folder_that_is_not_there_is_named(tmp_path, history):
    with pytest.raises(FlexFloorError, match=r"lengths\.parquet: the length history cannot be written"):
        write_history(tmp_path / "none" / "lengths.parquet", history)
