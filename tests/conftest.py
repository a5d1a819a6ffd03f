"""Set-up that every test shares."""

import hypothesis
import pytest
import torch

from flexfloor import launch
from megatron_patches import quiet

quiet.silence_expected()
# A rank reads the file of the test that it works for; these are what such files import.
launch.preload("pytest", "hypothesis", "transformers.models.mixtral.modeling_mixtral")
# Two threads of this process, whose tensors are small, and ranks of a test would wait for each other's cores.
torch.set_num_threads(1)
# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("flexfloor", deadline=None)
hypothesis.settings.load_profile("flexfloor")


def pytest_configure(config: pytest.Config) -> None:
    """Keep upstream's expected warnings out of the summary, as they are kept off a user's console."""
    for line in quiet.warning_filters():
        config.addinivalue_line("filterwarnings", line)
