"""The part of googleapis-common-protos that Kvorum uses; the package has no types of its own."""

from collections.abc import Iterable

from google.protobuf.any_pb2 import Any
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message

class Status(Message):
    code: int
    message: str
    details: RepeatedCompositeFieldContainer[Any]
    def __init__(
        self, *, code: int = ..., message: str = ..., details: Iterable[Any] = ...
    ) -> None: ...
