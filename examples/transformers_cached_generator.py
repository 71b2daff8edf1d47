"""Generate with a Hugging Face model whose prompts' KV is kept in a Kvorum cluster.

Start a cluster in another terminal with `kvorum up`, then run this twice, or in two terminals:

    pip install 'kvorum[transformers]'
    python examples/transformers_cached_generator.py --model HuggingFaceTB/SmolLM2-135M-Instruct

The second run, in a new process, fetches what the first one computed. Any folder with a model of
transformers will do too, such as the one that `kvorum demo` made in ~/.cache/kvorum/models.
"""

from __future__ import annotations

import argparse

from transformers import AutoModelForCausalLM, AutoTokenizer

from kvorum.client import Client
from kvorum.client.engines.transformers import (
    CachedGenerator,
    GeneratorSettings,
    fingerprint_of,
)

DOCUMENT = (
    "The lighthouse of Sorrow Point was built in 1874 by order of the harbour council. Its lamp "
    "burned rape oil until 1901, then paraffin, and since 1936 it has been electric. The keeper "
    "lived on the third floor with his family; the last of them, Maren Holt, left in 1979, when "
    "the light was made automatic. The tower is 41 metres high, has 203 steps, and is open to "
    "visitors from May to September, except on days of strong wind. "
) * 4


def main() -> None:
    """Ask two questions about one document; the document is computed once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", required=True, help="name on the hub, or a folder")
    parser.add_argument("--endpoints", default="127.0.0.1:7411,127.0.0.1:7412,127.0.0.1:7413")
    parser.add_argument("--zone", default="a", help="the zone that this worker stands in")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.1,
        help="seconds that the cache may cost a prompt; a prefill on a CPU costs far more",
    )
    arguments = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype="auto").eval()
    fingerprint = fingerprint_of(model, tokenizer, block_tokens=64)
    # A namespace holds the KV of one fingerprint, so that its name should tell models apart.
    namespace = f"example-{fingerprint.digest().hex()[:16]}"
    settings = GeneratorSettings(lookup_budget_s=arguments.patience, fetch_min_s=arguments.patience)

    with (
        Client(
            arguments.endpoints.split(","),
            namespace=namespace,
            fingerprint=fingerprint,
            zone=arguments.zone,
        ) as client,
        CachedGenerator(model, client, tokenizer=tokenizer, settings=settings) as generator,
    ):
        client.connect()
        for question in ("How high is the tower?", "Who was the last keeper?"):
            result = generator.generate(
                f"{DOCUMENT}\nQuestion: {question}\nAnswer:", max_new_tokens=16
            )
            print(
                f"{result.cached_tokens} of {result.prompt_tokens} tokens from the cache, "
                f"first token after {result.ttft_s * 1000:.0f} ms:{result.text}"
            )
            generator.flush()  # so that the next question finds what this one computed


if __name__ == "__main__":
    main()
