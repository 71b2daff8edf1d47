"""Arrays and buffers of callers as NumPy sees them, sharing memory, whatever made them.

torch is never imported here: a torch tensor is recognised by the module of its class, and torch
is then loaded already.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from kvorum.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Array: TypeAlias = npt.NDArray[Any]


class Tensor(Protocol):
    """A torch tensor, as far as its type matters to a caller."""

    @property
    def shape(self) -> Sequence[int]:
        """Elements along each axis."""

    @property
    def dtype(self) -> object:
        """Element type."""

    @property
    def device(self) -> object:
        """Where its memory is."""

    def detach(self) -> object:
        """Return the tensor without its history."""


Kv: TypeAlias = "Array | Tensor | Sequence[Array | Tensor | ReadableBuffer]"
"""What a store takes: [layers, 2, kv_heads, tokens, head_size], or a buffer for each block."""

Into: TypeAlias = "Array | Tensor | WriteableBuffer"
"""What a fetch fills: [layers, 2, kv_heads, tokens, head_size], or one contiguous buffer."""

STORAGE_DTYPE: Final[dict[str, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "float8_e4m3fn": np.dtype("u1"),
    "float8_e5m2": np.dtype("u1"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
}
"""The NumPy type that holds each `kv_dtype`: itself, or unsigned integers where NumPy has none."""


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether `value` is a torch tensor."""
    return any(cls.__module__ == "torch" and cls.__name__ == "Tensor" for cls in type(value).mro())


def is_array(value: object) -> TypeGuard[Array | Tensor]:
    """Return whether `value` is a NumPy array or a torch tensor."""
    return isinstance(value, np.ndarray) or is_tensor(value)


def dtype_name(value: Array | Tensor) -> str:
    """Return the element type of an array or tensor in the words of `kv_dtype`."""
    return str(value.dtype).removeprefix("torch.")


def host_array(value: Array | Tensor, field: str, *, writable: bool) -> Array:
    """Return a NumPy view of an array or tensor in host memory, with its shape and strides.

    bfloat16 and float8 elements appear as unsigned integers of the same size. A tensor on another
    device is copied to the host if it is only to be read.

    Raises:
        InvalidArgumentError: `writable` is asked of memory that cannot be written or that is not
            in host memory; the byte order is not little-endian.
    """
    if isinstance(value, np.ndarray):
        array = value if value.dtype.kind in "fiu" else value.view(f"u{value.dtype.itemsize}")
    else:
        array = _tensor_view(value, field, writable=writable)
    if array.dtype != array.dtype.newbyteorder("<"):
        raise InvalidArgumentError(
            f"{field} has elements of type {array.dtype.str}", field=field, limit="little-endian"
        )
    if writable and not array.flags.writeable:
        raise InvalidArgumentError(f"{field} is read-only", field=field, limit="writable memory")
    return array


def _tensor_view(tensor: Tensor, field: str, *, writable: bool) -> Array:
    if writable and str(tensor.device) != "cpu":
        raise InvalidArgumentError(
            f"{field} is on the device {tensor.device}", field=field, limit="host memory"
        )
    plain: Any = tensor.detach()
    plain = plain.cpu()
    name = dtype_name(tensor)
    if name == "bfloat16" or name.startswith("float8"):
        torch: Any = sys.modules["torch"]
        plain = plain.view(torch.uint16 if name == "bfloat16" else torch.uint8)
    array: Array = plain.numpy()
    return array


def byte_view(value: object, field: str, *, writable: bool) -> memoryview:
    """Return the bytes of one contiguous buffer, array or tensor, without a copy.

    Raises:
        InvalidArgumentError: not a buffer, not contiguous, or not writable where `writable` asks.
    """
    if is_array(value):
        array = host_array(value, field, writable=writable)
        if not array.flags.c_contiguous:
            raise InvalidArgumentError(
                f"{field} is not contiguous", field=field, limit="one contiguous buffer"
            )
        return array.reshape(-1).view(np.uint8).data
    try:
        view = memoryview(value)  # type: ignore[arg-type]  # the TypeError is what we ask for
        flat = view.cast("B") if view.nbytes else memoryview(b"")
    except TypeError:
        raise InvalidArgumentError(
            f"{field} is a {type(value).__name__}", field=field, limit="one contiguous buffer"
        ) from None
    if writable and flat.readonly:
        raise InvalidArgumentError(f"{field} is read-only", field=field, limit="writable memory")
    return flat
