"""Gates: a bounded number inside, a typed refusal beyond, and room again afterwards."""

from __future__ import annotations

import pytest

from kvorum.core.errors import OverloadedError
from kvorum.node.admission import Gate


def test_a_full_gate_refuses_at_once_and_opens_again() -> None:
    gate = Gate("concurrent_gets_max", 2)
    with gate.enter():
        with gate.enter(), pytest.raises(OverloadedError) as caught, gate.enter():
            pytest.fail("a third one came in")
        assert gate.inside == 1
        with gate.enter():
            assert gate.inside == 2
    assert (gate.inside, gate.refused) == (0, 1)
    assert caught.value.field == "concurrent_gets_max"
    assert caught.value.limit == "2 at once"
    assert caught.value.retryable
    assert caught.value.retry_after_s


def test_whoever_fails_inside_leaves_the_gate() -> None:
    gate = Gate("calls", 1)
    with pytest.raises(RuntimeError), gate.enter():
        raise RuntimeError
    assert gate.inside == 0
