import logging

import pytest

from kvorum.client import MissReason
from kvorum.client.nodes import NodeState
from kvorum.client.results import StoreOutcome
from kvorum.client.wireenum import WireEnum


@pytest.mark.parametrize("kind", [MissReason, StoreOutcome, NodeState])
def test_people_see_names_and_the_wire_sees_numbers(kind: type[WireEnum]) -> None:
    for member in kind:
        assert f"{member}" == str(member) == member.name
        assert f"{member:>20}" == member.name.rjust(20)
        assert int(member) == member.value
        assert kind(int(member)) is member


def test_logs_show_names(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logging.getLogger(__name__).info("missed: reason=%s", MissReason.EVICTED)
    assert caplog.messages == ["missed: reason=EVICTED"]
