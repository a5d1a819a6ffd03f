"""What the fork server imports once, so that a rank starts in a fraction of a second.

Importing this module has that effect and no other.
"""

import atexit
import gc
import importlib

from megatron_patches import quiet

PRELOADED = (
    "megatron.core.dist_checkpointing",
    "megatron.core.distributed",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
    "matplotlib.pyplot",
    "pyarrow.parquet",
    "reasoning_gym",
    "tokenizers",
    "transformers",
    "flexfloor.models.grouped_query_moe",
    "flexfloor.models.latent_attention",
    "flexfloor.recipes.grpo",
)

quiet.silence_expected()
for name in PRELOADED:
    importlib.import_module(name)
# No collection of a rank visits what is here by now, which would cost each a copy of its pages besides time.
gc.freeze()
# At the server's own end all is collected: Triton's binding reports what is left as leaks.
atexit.register(gc.unfreeze)
