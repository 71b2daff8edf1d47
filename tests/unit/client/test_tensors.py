"""torch tensors of every element type are read and filled bit by bit, without importing torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from kvorum.client.destinations import open_destination
from kvorum.client.sources import open_source
from kvorum.client.tensors import STORAGE_DTYPE, byte_view
from kvorum.core.errors import InvalidArgumentError
from kvorum.core.fingerprint import DTYPE_BYTES
from kvorum.core.layout import BlockLayout
from tests.unit.client.samples import build, noise

torch = pytest.importorskip("torch")


def bits_of(kv_dtype: str) -> Any:
    """Return noise for two blocks, in the type that stores `kv_dtype`."""
    layout = BlockLayout.of(build(kv_dtype=kv_dtype))
    return noise(layout.sequence_shape(2), STORAGE_DTYPE[kv_dtype].str)


def tensor_of(kv_dtype: str, bits: Any) -> Any:
    """Return a tensor of `kv_dtype` with these bits."""
    plain = torch.from_numpy(bits.view(f"u{bits.itemsize}").copy())
    return plain.view(getattr(torch, kv_dtype))


@pytest.mark.parametrize("kv_dtype", DTYPE_BYTES)
def test_a_store_reads_the_bits_of_a_tensor(kv_dtype: str) -> None:
    fingerprint, bits = build(kv_dtype=kv_dtype), bits_of(kv_dtype)
    source = open_source(tensor_of(kv_dtype, bits), fingerprint, 2)
    blocks = BlockLayout.of(fingerprint).split(bits, 2)
    assert [b"".join(source.runs(at)) for at in range(2)] == [block.tobytes() for block in blocks]


@pytest.mark.parametrize("kv_dtype", DTYPE_BYTES)
def test_a_fetch_fills_a_tensor_bit_by_bit(kv_dtype: str) -> None:
    fingerprint, bits = build(kv_dtype=kv_dtype), bits_of(kv_dtype)
    layout = BlockLayout.of(fingerprint)
    into = torch.zeros(bits.shape, dtype=getattr(torch, kv_dtype))
    destination = open_destination(into, fingerprint, [layout.part_bytes] * 2, None)
    for position, block in enumerate(layout.split(bits, 2)):
        destination.begin(position, layout.part_bytes)
        destination.write(position, 0, memoryview(block.tobytes()))
    destination.finish(2)
    assert into.view(torch.uint8).numpy().tobytes() == bits.tobytes()


def test_a_tensor_with_a_history_is_read_all_the_same() -> None:
    bits = bits_of("float32")
    tensor = tensor_of("float32", bits).requires_grad_()
    source = open_source(tensor, build(kv_dtype="float32"), 2)
    assert b"".join(source.runs(0))


def test_a_flat_tensor_is_a_buffer() -> None:
    tensor = torch.zeros(8, dtype=torch.bfloat16)
    view = byte_view(tensor, "into", writable=True)
    view[:] = bytes(range(16))
    assert tensor.view(torch.uint8).tolist() == list(range(16))


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros((4, 2, 2, 32, 8), dtype=torch.bfloat16), torch.zeros((4, 2, 2, 32, 8))],
    ids=["bfloat16", "float32"],
)
def test_a_tensor_of_another_type_is_refused(tensor: Any) -> None:
    for call in (
        lambda: open_source(tensor, build(), 2),
        lambda: open_destination(tensor, build(), [4096] * 2, None),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            call()
        assert "float16" in caught.value.limit


def test_memory_that_the_host_cannot_reach_is_refused() -> None:
    tensor = torch.zeros((4, 2, 2, 32, 8), dtype=torch.float16, device="meta")
    with pytest.raises(InvalidArgumentError) as caught:
        open_destination(tensor, build(), [4096] * 2, None)
    assert caught.value.limit == "host memory"


def test_the_client_does_not_import_torch() -> None:
    code = "import sys, kvorum.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_numpy_arrays_of_types_that_others_add_are_read() -> None:
    """A structured type stands in for those that NumPy has no name for, such as ml_dtypes'."""
    raw = np.zeros(4, dtype="V2")
    assert byte_view(raw, "kv", writable=False).nbytes == 8
