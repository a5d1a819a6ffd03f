"""What `megatron.core.transformer.multi_latent_attention` takes for granted: Transformer Engine."""

from __future__ import annotations

from megatron_patches.patch import Kind, Patch

PATCHES = (
    Patch(
        target="megatron.core.transformer.multi_latent_attention:HAVE_TE",
        why="the flag is true although Transformer Engine is absent, whose classes are mocks then, "
        "and building the layer asks isinstance of a mock",
        remove_when="upstream takes the flag from where it is set by importing transformer_engine itself",
        wrap=lambda _: False,
        upstream_sha={"0.16.1": "02a9d8c70b08"},
        kind=Kind.REPLACEMENT,
    ),
)
