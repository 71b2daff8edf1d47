"""Short names for prompts and their blocks, for the engine's tests.

A prompt is a word and each letter a block: the word "abc" names the third block of a prompt whose
predecessor is "ab". Keys are hashes of words, so they chain as real keys do.
"""

from __future__ import annotations

import hashlib

from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import slot_of
from kvorum.node.engine.events import NamespaceId, NamespaceRecord, Policy, WriteItem

PAGE = 4096
SEGMENT = 4
"""Blocks a segment, in every namespace of these tests."""


def key_of(word: str) -> bytes:
    """Return the key of the last block of a prompt; of "" the root's."""
    return hashlib.sha3_512(word.encode()).digest()


def segment_of(word: str) -> str:
    """Return the name of the first block of the segment that the last block lies in."""
    index = len(word) - 1
    return word[: index - index % SEGMENT + 1]


def words(prompt: str) -> list[str]:
    """Return the names of a prompt's blocks, in order."""
    return [prompt[: end + 1] for end in range(len(prompt))]


def slot(word: str) -> int:
    """Return the slot of a prompt's last block."""
    return slot_of(key_of(segment_of(word)))


def fingerprint(parts: int = 1, model: str = "m") -> Fingerprint:
    """Return a fingerprint whose blocks have so many parts of any size, four blocks a segment."""
    return Fingerprint(
        model=model,
        weights_revision="r",
        tokenizer="t",
        adapter="none",
        kv_dtype="uint8",
        layout="opaque",
        layers=1,
        kv_heads=1,
        head_size=1,
        rope="none",
        tp_size=parts,
        pp_size=1,
        cp_size=1,
        block_tokens=2048 // SEGMENT,
        codec_class="lossless",
    )


def record(
    name: str,
    parts: int = 1,
    *,
    policy: Policy | None = None,
    revision: int = 1,
    deleted: bool = False,
    model: str = "m",
) -> NamespaceRecord:
    """Return a namespace's record; without a policy it asks for two replicas and nothing else."""
    return NamespaceRecord(
        NamespaceId("t", name),
        fingerprint(parts, model),
        policy or Policy(2),
        revision,
        deleted,
    )


def item(  # reads as the block's name followed by what is odd about it
    word: str,
    part: int = 0,
    parts: int = 1,
    frame_sizes: tuple[int, ...] = (PAGE,),
    frame_crc32c: tuple[int, ...] = (1,),
    if_group: int = 0,
) -> WriteItem:
    """Return the announcement of one part of a prompt's last block."""
    return WriteItem(
        key=key_of(word),
        parent=key_of(word[:-1]),
        index=len(word) - 1,
        slot=slot(word),
        part=part,
        parts=parts,
        frame_sizes=frame_sizes,
        frame_crc32c=frame_crc32c,
        if_group=if_group,
    )
