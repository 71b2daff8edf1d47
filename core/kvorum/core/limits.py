"""Every limit of the wire format and of the API in one place, each with its unit.

They bound what one message, one request or one name may cost a node before anything is
allocated for it. `docs/limits.md` is checked against this module.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 1

KEY_BYTES: Final = 64
SLOTS: Final = 16_384
SEGMENT_TOKENS: Final = 2_048
PROMPT_ID_TOKENS: Final = 1_024

BLOCK_TOKENS_DEFAULT: Final = 128
BLOCK_TOKENS_MULTIPLE: Final = 16
BLOCK_TOKENS_MAX: Final = 2_048

TOKEN_ID_MAX: Final = 2**32 - 1
PROMPT_TOKENS_MAX: Final = 1_048_576
LOOKUP_BLOCKS_MAX: Final = 8_192
BATCH_ITEMS_MAX: Final = 1_024

FRAME_BYTES: Final = 1 << 20
MESSAGE_BYTES_MAX: Final = 8 << 20
PART_BYTES_MAX: Final = 64 << 20
PART_FRAMES_MAX: Final = 1_024
PARTS_MAX: Final = 1_024

NAME_CHARS_MAX: Final = 128
FINGERPRINT_TEXT_BYTES_MAX: Final = 1_024
NAMESPACES_MAX: Final = 1_024
TENANTS_MAX: Final = 1_024
TOKEN_CHARS_MIN: Final = 16
TOKEN_CHARS_MAX: Final = 512
REPLICAS_DEFAULT: Final = 2
REPLICAS_MAX: Final = 3

ZONES_MAX: Final = 16
SHARDS_MAX: Final = 1_024
MEMBERS_MAX: Final = 4_096
EPOCH_MAX: Final = 2**63 - 1
ADDRESS_CHARS_MAX: Final = 256
CLUSTER_FILE_CHARS_MAX: Final = 4 << 20

LEASE_S_DEFAULT: Final = 10.0
LEASE_S_MAX: Final = 60.0
CALL_S_MAX: Final = 60.0
LOOKUP_BUDGET_S_DEFAULT: Final = 0.005
