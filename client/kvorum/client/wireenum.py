"""WireEnum: an enumeration whose numbers are the wire's and whose text is the member's name."""

from __future__ import annotations

import enum


class WireEnum(enum.IntEnum):
    """Numbers equal those of `kvorum.v1`; people see names, also in f-strings and logs."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)
