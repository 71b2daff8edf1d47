"""Store and fetch KV as NumPy arrays, without any inference engine.

Start a cluster in another terminal with `kvorum up`, then:

    python examples/raw_numpy.py
"""

from __future__ import annotations

import argparse

import numpy as np

from kvorum.client import Client, Fingerprint

# Whatever changes the numbers, or their order, belongs in here: KV under one fingerprint is never
# given to a reader with another.
FINGERPRINT = Fingerprint(
    model="example",
    weights_revision="1",
    tokenizer="none",
    adapter="none",
    kv_dtype="float16",
    layout="LKHTD",
    layers=4,
    kv_heads=2,
    head_size=32,
    rope="none",
    tp_size=1,
    pp_size=1,
    cp_size=1,
    block_tokens=64,
    codec_class="lossless",
)


def main() -> None:
    """Store a prompt's KV, then find and fetch the part that another prompt shares with it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--endpoints", default="127.0.0.1:7411,127.0.0.1:7412,127.0.0.1:7413")
    parser.add_argument("--zone", default="a", help="the zone that this worker stands in")
    arguments = parser.parse_args()

    random = np.random.default_rng()
    prompt = random.integers(0, 32_000, size=300)  # 4 full blocks of 64 tokens, and 44 tokens
    # [layers, K or V, heads, tokens, head size]; a model would have computed it.
    kv = random.standard_normal((4, 2, 2, 300, 32)).astype(np.float16)

    with Client(
        arguments.endpoints.split(","),
        namespace="example-numpy",
        fingerprint=FINGERPRINT,
        zone=arguments.zone,
    ) as client:
        client.connect()  # optional: without it, an unreachable cluster is just a miss
        stored = client.store(prompt, kv)
        print(f"stored {stored.stored} blocks, acknowledged by zones {', '.join(stored.zones)}")

        # Another prompt that begins with the same 200 tokens shares 3 blocks of 64.
        other = np.concatenate([prompt[:200], random.integers(0, 32_000, size=100)])
        hit = client.lookup(other, budget_s=1.0)
        reason = hit.reason or "present"
        print(f"found {hit.tokens} of {len(other)} tokens; the next block: {reason}")

        into = np.empty((4, 2, 2, hit.tokens, 32), dtype=np.float16)
        fetched = client.fetch(hit, into=into, deadline_s=5.0)
        print(f"fetched {fetched.tokens} tokens, bytes by zone: {dict(fetched.bytes_by_zone)}")

    if not np.array_equal(into[:, :, :, : fetched.tokens], kv[:, :, :, : fetched.tokens]):
        raise SystemExit("the bytes differ")
    if fetched.tokens != 192:
        raise SystemExit(f"expected 192 tokens, not {fetched.tokens}: {fetched.reason}")
    print("every byte is what was stored")


if __name__ == "__main__":
    main()
