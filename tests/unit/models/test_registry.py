import pytest

from flexfloor.errors import ConfigError
from flexfloor.models.registry import family_path, get_family, register_family


def test_a_shipped_family_and_a_path_are_found():
    assert type(get_family("mixtral")).__name__ == "Mixtral"
    assert type(get_family("flexfloor.models.mixtral:Mixtral")).__name__ == "Mixtral"
    assert family_path("my.module:Family") == "my.module:Family"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mixtrall", r"model.family = 'mixtrall'.*mixtral"),
        ("no.such.module:Family", r"cannot be imported: No module named 'no'"),
        ("flexfloor.models.mixtral:Mixtrl", r"has no attribute 'Mixtrl'"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(name, message):
    with pytest.raises(ConfigError, match=message):
        get_family(name)


def test_a_name_keeps_its_first_class():
    register_family("test-family", "a:B")
    register_family("test-family", "a:B")
    assert family_path("test-family") == "a:B"
    with pytest.raises(ConfigError, match=r"test-family.*a:B.*c:D"):
        register_family("test-family", "c:D")
