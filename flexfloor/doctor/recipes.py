"""Which configurations would run on this machine: their settings, their ranks, their memory.

Nothing is built and no data is read beyond the tokenizer, so that the answer takes seconds.
"""

from __future__ import annotations

from pathlib import Path

from flexfloor import device
from flexfloor.config import Config, compose, world_size
from flexfloor.data.tokenizer import embedding_rows, load_tokenizer
from flexfloor.doctor.machine import GIB
from flexfloor.doctor.memory import PROCESS_BYTES, rank_bytes
from flexfloor.doctor.types import Verdict
from flexfloor.errors import ConfigError
from flexfloor.models.tp_fit import check_vocabulary_fit
from flexfloor.preflight import check_host


def judge(name: str, overrides: list[str], config_dir: Path | None = None) -> Verdict:
    """Whether what `overrides` compose to would run here, under the name `name`."""
    try:
        config = compose(overrides, config_dir)
    except ConfigError as error:
        return Verdict(name=name, complaint=str(error))
    ranks = world_size(config.launch)
    try:
        check_host(config)
        vocab_size = embedding_rows(config.model.vocab_size, load_tokenizer(config.tokenizer.path))
        check_vocabulary_fit(vocab_size, config.parallel.tp)
    except ConfigError as error:
        return Verdict(name=name, ranks=ranks, complaint=str(error))
    return _judge_size(name, config, vocab_size, ranks)


def _judge_size(name: str, config: Config, vocab_size: int, ranks: int) -> Verdict:
    on_cpu, devices = device.is_cpu_host(), device.num_accelerators()
    of_rank = rank_bytes(config, vocab_size=vocab_size, world_size=ranks, is_cpu_host=on_cpu)
    complaint, budget = None, config.memory.budget_bytes
    # The budget is one of tensors, and leaves the process itself out.
    of_tensors = of_rank - PROCESS_BYTES * on_cpu
    if budget is not None and of_tensors > budget:
        complaint = f"about {of_tensors} bytes a rank needed, memory.budget_bytes = {budget}"
    elif not on_cpu and ranks > devices:
        complaint = f"{ranks} ranks, and {devices} accelerators"
    elif (needed := of_rank * (ranks if on_cpu else 1)) > device.free_memory_bytes():
        where = "this machine" if on_cpu else "an accelerator"
        complaint = (
            f"about {needed / GIB:.1f} GiB needed, {where} has {device.free_memory_bytes() / GIB:.1f} free"
        )
    return Verdict(name=name, ranks=ranks, needed_bytes=of_rank * ranks, complaint=complaint)
