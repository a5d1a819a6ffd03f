"""Set-up that every test shares."""

import pytest

from megatron_patches import quiet

quiet.silence_expected()


def pytest_configure(config: pytest.Config) -> None:
    """Keep upstream's expected warnings out of the summary, as they are kept off a user's console."""
    for line in quiet.warning_filters():
        config.addinivalue_line("filterwarnings", line)
