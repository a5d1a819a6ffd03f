"""vLLM as a process that generates on demand, in an environment of its own; it knows nothing of FlexFloor.

`python vllm_peer.py FOLDER --threads N --max-length N --max-sequences N` loads the Hugging Face folder in
bfloat16, writes a line of JSON when it is ready, and then answers each line it reads with one. A request
has `prompts`, lists of token ids, and `new_tokens`; the answer has `tokens`, how many were generated, and
`first`, the first token of each response.

Invariants:
- Between requests it computes nothing: the engine lives in this process and works only when called.
- Its standard output has answers only: what vLLM writes there goes to standard error.
- It asks no network for anything.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, TextIO


def main() -> None:
    """Load, then answer until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-length", type=int, required=True, help="tokens of a prompt and its response")
    parser.add_argument("--max-sequences", type=int, required=True)
    options = parser.parse_args()
    answers = own_standard_output()
    set_environment(options.threads)
    llm = load(options)
    say(answers, {"ready": True})
    for line in sys.stdin:
        say(answers, generate(llm, json.loads(line)))


def own_standard_output() -> TextIO:
    """Standard output as it was; whoever writes there from now on writes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def set_environment(threads: int) -> None:
    """What vLLM and its libraries read when they are imported."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    os.environ.update(
        HF_HUB_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND=",".join(map(str, cores)),
        OMP_NUM_THREADS=str(threads),
    )


def load(options: argparse.Namespace) -> Any:
    """The folder's model, compiled, as is vLLM's default; no cache of prompts, since they repeat here."""
    from vllm import LLM

    return LLM(
        options.folder,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=options.max_length,
        max_num_seqs=options.max_sequences,
        enable_prefix_caching=False,
    )


def generate(llm: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Greedy responses to all prompts of `request`, each of `new_tokens` tokens."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0, max_tokens=request["new_tokens"], ignore_eos=True, detokenize=False
    )
    prompts = [{"prompt_token_ids": ids} for ids in request["prompts"]]
    responses = [output.outputs[0].token_ids for output in llm.generate(prompts, sampling, use_tqdm=False)]
    return {"tokens": sum(map(len, responses)), "first": [ids[0] for ids in responses]}


def say(answers: TextIO, answer: dict[str, Any]) -> None:
    """Write one answer."""
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
