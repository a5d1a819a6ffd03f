import pytest

from flexfloor.errors import ConfigError
from flexfloor.reward.config import CustomRewardConfig
from flexfloor.reward.user_function import load_user_function

EVERYTHING = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, finish_reason=None, bonus=0):
    return [data_source, solution_str, ground_truth, extra_info, finish_reason, bonus]
"""


@pytest.fixture
def load(tmp_path):
    """Load a function from a file of its own."""

    def load(code, **settings):
        file = tmp_path / f"score_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(code)
        return load_user_function(CustomRewardConfig(path=str(file), **settings))

    return load


def test_a_function_gets_the_row_the_response_and_its_own_arguments(load, make_prompt):
    score = load(EVERYTHING, kwargs={"bonus": 5})
    assert score(make_prompt(index=7), "two", "length") == ["sums", "two", "2", {"index": 7}, "length", 5]


def test_a_function_gets_only_what_its_signature_names(load, make_prompt):
    bare = load("def compute_score(data_source, solution_str, ground_truth): return 1")
    assert bare(make_prompt(), "", "eos") == 1
    swallowing = "def compute_score(data_source, solution_str, ground_truth, **kwargs): return sorted(kwargs)"
    assert load(swallowing, kwargs={"bonus": 5})(make_prompt(), "", "eos") == ["bonus"]


def test_another_name_is_found(load, make_prompt):
    code = "def mine(solution_str, ground_truth, data_source, *, extra_info): return extra_info['index']"
    assert load(code, name="mine")(make_prompt(index=7), "", "eos") == 7


LIMITED = "def compute_score(data_source, solution_str, ground_truth, limit): ..."


@pytest.mark.parametrize(
    ("code", "settings", "message"),
    [
        ("x = 1", {}, r"name=compute_score: .*score_0.py has no function of that name"),
        ("compute_score = 1", {}, r"has no function of that name"),
        ("async def compute_score(): ...", {}, r"it is async"),
        (
            "def compute_score(answer): ...",
            {},
            r"compute_score\(answer\) cannot be called: missing .*'answer'",
        ),
        (
            EVERYTHING,
            {"kwargs": {"malus": 1}},
            r"cannot be called: got an unexpected keyword argument 'malus'",
        ),
        (
            LIMITED,
            {},
            r"cannot be called: missing a required argument: 'limit'.*custom_reward_function.kwargs",
        ),
        (EVERYTHING, {"kwargs": {"ground_truth": 1}}, r"kwargs.ground_truth is not set here"),
        ("1/0", {}, r"ZeroDivisionError while importing it"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_at_once(load, code, settings, message):
    with pytest.raises(ConfigError, match=message):
        load(code, **settings)


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"reward.custom_reward_function.path=gone.py: no such file"):
        load_user_function(CustomRewardConfig(path="gone.py"))
