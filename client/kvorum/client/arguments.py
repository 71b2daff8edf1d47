"""Arguments of callers, checked before anything is sent; every error names field and limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from kvorum.client.results import Hit
from kvorum.client.security import Tls
from kvorum.core import limits
from kvorum.core.errors import FingerprintError, InvalidArgumentError, shown
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.layout import BlockLayout
from kvorum.core.names import check_name
from kvorum.placement import Member, split_address

_ENDPOINTS_MAX: Final = 64
_SECONDS_MAX: Final = 3_600.0
_SINGLE_WRITER: Final = "single"
_WRITER: Final = f"1 to {limits.NAME_CHARS_MAX} characters, equal for all ranks of one engine"


def check_endpoints(
    endpoints: str | Sequence[str], *, token: str | None, tls: Tls | None
) -> tuple[str, ...]:
    """Return the endpoints as a tuple.

    Raises:
        InvalidArgumentError: there are none or too many, one is no address, or a token would
            travel in plain text to another machine.
    """
    listed = (endpoints,) if isinstance(endpoints, str) else tuple(endpoints)
    if not 1 <= len(listed) <= _ENDPOINTS_MAX:
        raise InvalidArgumentError(
            f"{len(listed)} endpoints", field="endpoints", limit=f"1 to {_ENDPOINTS_MAX}"
        )
    for at, endpoint in enumerate(listed):
        try:
            split_address(endpoint)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                error.message, field=f"endpoints[{at}]", limit=error.limit
            ) from None
        check_privacy(endpoint, f"endpoints[{at}]", token=token, tls=tls)
    return listed


def check_privacy(address: str, field: str, *, token: str | None, tls: Tls | None) -> None:
    """Check that credentials do not travel in plain text between machines.

    Raises:
        InvalidArgumentError: they would.
    """
    if token is None or tls is not None:
        return
    if not Member(name="endpoint", zone="any", shard=0, address=address).is_loopback:
        raise InvalidArgumentError(
            f"a token would travel to {address} in plain text",
            field=field,
            limit="a loopback address, or tls",
        )


def check_zone(zone: str | None) -> str | None:
    """Return the zone if it is a name, or None.

    Raises:
        InvalidArgumentError: it is no name.
    """
    return None if zone is None else check_name(zone, "zone")


def check_fingerprint(fingerprint: Fingerprint) -> Fingerprint:
    """Return the fingerprint if a client can work with it.

    Raises:
        FingerprintError: it is none.
        InvalidArgumentError: it describes blocks that cannot be stored; see `BlockLayout.of`.
    """
    if not isinstance(fingerprint, Fingerprint):
        raise FingerprintError(
            f"fingerprint is {shown(fingerprint)}", field="fingerprint", limit="a Fingerprint"
        )
    if fingerprint.parts > limits.PARTS_MAX:
        raise FingerprintError(
            f"a block has {fingerprint.parts} parts",
            field="fingerprint.tp_size",
            limit=f"{limits.PARTS_MAX} parts",
        )
    if fingerprint.layout != "opaque":
        BlockLayout.of(fingerprint)
    return fingerprint


def check_part(part: int, fingerprint: Fingerprint) -> int:
    """Return the part if the fingerprint has it.

    Raises:
        InvalidArgumentError: it has not.
    """
    return _check_range(part, 0, fingerprint.parts - 1, "part")


def check_writer(writer: str | None) -> str | None:
    """Return the writer's name, or None.

    Raises:
        InvalidArgumentError: it is no name.
    """
    if writer is None or (isinstance(writer, str) and 1 <= len(writer) <= limits.NAME_CHARS_MAX):
        return writer
    raise InvalidArgumentError(f"writer is {shown(writer)}", field="writer", limit=_WRITER)


def require_writer(writer: str | None, fingerprint: Fingerprint) -> str:
    """Return the writer's name for a store; blocks of one part need none.

    Without a name all clients count as one writer, so that equal blocks are equal groups.

    Raises:
        InvalidArgumentError: it is missing where parts must be told apart.
    """
    if writer is None and fingerprint.parts > 1:
        raise InvalidArgumentError(
            f"a block has {fingerprint.parts} parts and writer is missing",
            field="writer",
            limit=_WRITER,
        )
    return writer or _SINGLE_WRITER


def check_seconds(value: float | None, default: float, field: str) -> float:
    """Return `value`, or the default if it is None.

    Raises:
        InvalidArgumentError: it is not a number from 0 to 3,600.
    """
    if value is None:
        return default
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value <= _SECONDS_MAX:
        raise InvalidArgumentError(
            f"{field} is {shown(value)}", field=field, limit=f"0 to {_SECONDS_MAX:g} seconds"
        )
    return float(value)


def check_lease(lease_s: float) -> float:
    """Return the lease.

    Raises:
        InvalidArgumentError: it is not a number from 0 to `limits.LEASE_S_MAX`.
    """
    lease_s = check_seconds(lease_s, 0.0, "lease_s")
    if lease_s > limits.LEASE_S_MAX:
        raise InvalidArgumentError(
            f"lease_s is {lease_s:g}", field="lease_s", limit=f"0 to {limits.LEASE_S_MAX:g} seconds"
        )
    return lease_s


def check_hit(hit: Hit, namespace: str, fingerprint_digest: bytes) -> Hit:
    """Return the hit if it is one of this client's namespace and fingerprint.

    Raises:
        InvalidArgumentError: it is not.
    """
    if not isinstance(hit, Hit):
        raise InvalidArgumentError(f"hit is {shown(hit)}", field="hit", limit="a Hit")
    if hit.blocks and (hit.namespace, hit.fingerprint_digest) != (namespace, fingerprint_digest):
        raise InvalidArgumentError(
            f"the hit is of the namespace {hit.namespace} or of another fingerprint",
            field="hit",
            limit=f"a hit of {namespace}, under this client's fingerprint",
        )
    return hit


def check_layers(
    layers: tuple[int, int] | None, fingerprint: Fingerprint
) -> tuple[int, int] | None:
    """Return the range of layers; None for all.

    Raises:
        InvalidArgumentError: the layout has no layers, or not these.
    """
    if layers is None:
        return None
    count = 0 if fingerprint.layout == "opaque" else BlockLayout.of(fingerprint).layers
    limit = f"(begin, end) with 0 <= begin < end <= {count}"
    if not count:
        raise InvalidArgumentError(
            "opaque blocks have no layers", field="layers", limit="None for opaque blocks"
        )
    if not isinstance(layers, Sequence) or len(layers) != 2:
        raise InvalidArgumentError(f"layers is {shown(layers)}", field="layers", limit=limit)
    begin, end = layers
    if not all(isinstance(at, int) and not isinstance(at, bool) for at in (begin, end)):
        raise InvalidArgumentError("layers holds no integers", field="layers", limit=limit)
    if not 0 <= begin < end <= count:
        raise InvalidArgumentError(f"layers is ({begin}, {end})", field="layers", limit=limit)
    return begin, end


def check_first_block(first_block: int, blocks: int) -> int:
    """Return the position at which a store begins.

    Raises:
        InvalidArgumentError: it is behind the last full block.
    """
    return _check_range(first_block, 0, blocks, "first_block")


def _check_range(value: int, low: int, high: int, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgumentError(
            f"{field} is {shown(value)}", field=field, limit=f"{low} to {high}"
        )
    return value
