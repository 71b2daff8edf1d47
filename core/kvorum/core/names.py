"""Names: the one rule for clusters, zones, members, tenants and namespaces.

Names travel in messages, log lines, metrics and file names, so they are short and have no
character that any of these would have to escape.
"""

from __future__ import annotations

import re
from typing import Final

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError, shown

_NAME: Final = re.compile(r"[a-z0-9._-]+", re.ASCII)


def check_name(value: object, field: str) -> str:
    """Return `value` if it is a name: 1 to 128 of `a-z 0-9 . _ -`.

    Raises:
        InvalidArgumentError: not text, empty, or with another character; it names `field`.
        TooLargeError: too long.
    """
    rule = f"1 to {limits.NAME_CHARS_MAX} of a-z 0-9 . _ -"
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{field} is no name", field=field, limit=rule)
    if len(value) > limits.NAME_CHARS_MAX:
        raise TooLargeError(f"{field} has {len(value)} characters", field=field, limit=rule)
    if not _NAME.fullmatch(value):
        raise InvalidArgumentError(f"{field} is {shown(value)}", field=field, limit=rule)
    return value
