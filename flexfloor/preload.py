"""What the fork server imports once, so that a rank starts in a fraction of a second.

Importing this module has that effect and no other.
"""

import importlib

from megatron_patches import quiet

PRELOADED = (
    "megatron.core.dist_checkpointing",
    "megatron.core.distributed",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
)

quiet.silence_expected()
for name in PRELOADED:
    importlib.import_module(name)
