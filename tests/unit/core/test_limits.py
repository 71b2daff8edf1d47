"""Limits hold together: what one allows, another does not forbid."""

from __future__ import annotations

from kvorum.core import limits


def test_a_block_fits_into_a_segment_and_a_frame_into_a_message() -> None:
    assert limits.BLOCK_TOKENS_DEFAULT % limits.BLOCK_TOKENS_MULTIPLE == 0
    assert limits.BLOCK_TOKENS_MAX % limits.BLOCK_TOKENS_MULTIPLE == 0
    assert limits.BLOCK_TOKENS_DEFAULT <= limits.BLOCK_TOKENS_MAX <= limits.SEGMENT_TOKENS
    assert limits.FRAME_BYTES < limits.MESSAGE_BYTES_MAX


def test_the_longest_prompt_of_default_blocks_fits_into_one_lookup() -> None:
    blocks = limits.PROMPT_TOKENS_MAX // limits.BLOCK_TOKENS_DEFAULT
    assert blocks <= limits.LOOKUP_BLOCKS_MAX
    assert limits.LOOKUP_BLOCKS_MAX * (limits.KEY_BYTES + 3) < limits.MESSAGE_BYTES_MAX
    token_bytes = 5  # the longest varint of an id
    assert limits.PROMPT_TOKENS_MAX * token_bytes < limits.MESSAGE_BYTES_MAX


def test_slots_are_numbered_by_fourteen_bits_and_every_shard_can_own_some() -> None:
    assert limits.SLOTS == 1 << 14
    assert limits.SHARDS_MAX <= limits.SLOTS
    assert limits.REPLICAS_DEFAULT <= limits.REPLICAS_MAX <= limits.ZONES_MAX


def test_times_are_ordered() -> None:
    assert limits.LOOKUP_BUDGET_S_DEFAULT < limits.LEASE_S_DEFAULT <= limits.LEASE_S_MAX
    assert limits.LEASE_S_MAX <= limits.CALL_S_MAX
