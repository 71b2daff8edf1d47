"""NamespaceExchange: two engines that tell each other everything end equal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, KvorumError
from kvorum.node.engine.events import ApplyNamespace, NamespaceId, NamespaceRecord, Policy
from kvorum.node.exchange import NamespaceExchange
from kvorum.node.service.wire import record_message
from kvorum.v1 import replication_pb2
from tests.unit.node.stand import OPAQUE, Stand, stand


def record(name: str, revision: int = 1, *, deleted: bool = False) -> NamespaceRecord:
    return NamespaceRecord(NamespaceId("default", name), OPAQUE, Policy(1), revision, deleted)


def made() -> tuple[Stand, NamespaceExchange]:
    one = stand()
    return one, NamespaceExchange(one.driver, zones=2)


def names(one: Stand) -> dict[str, tuple[int, bool]]:
    return {r.id.name: (r.revision, r.deleted) for r in one.driver.engine.namespaces()}


def test_both_sides_end_equal() -> None:
    (left, left_exchange), (right, right_exchange) = made(), made()
    left.driver.tell(ApplyNamespace(record("left")))
    left.driver.tell(ApplyNamespace(record("both", 2)))
    right.driver.tell(ApplyNamespace(record("both", 3, deleted=True)))
    right.driver.tell(ApplyNamespace(record("right")))
    right_exchange.take_in("left", left_exchange.messages("right"))
    left_exchange.take_in("right", right_exchange.messages("left"))
    assert names(left) == names(right)
    assert names(left)["both"] == (3, True)


def test_a_change_after_an_exchange_is_told_too() -> None:
    (left, left_exchange), (right, right_exchange) = made(), made()
    for revision in (1, 2, 2, 3):
        left.driver.tell(ApplyNamespace(record("one", revision)))
        right_exchange.take_in("left", left_exchange.messages("right"))
        assert names(right)["one"] == (revision, False)


def test_what_did_not_change_is_not_applied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a heartbeat with a thousand known namespaces costs next to nothing."""
    (_, left), (_, right) = made(), made()
    right.take_in("left", left.messages("right"))
    assert left.messages("right") is left.messages("right")
    monkeypatch.setattr(right, "apply", lambda message: pytest.fail(f"applied {message}"))
    right.take_in("left", left.messages("right"))


def test_one_malformed_record_does_not_keep_the_others_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, exchange = made()
    wrong = record_message(record("wrong"))
    wrong.namespace.fingerprint.ClearField("model")
    exchange.take_in("peer", [wrong, record_message(record("right"))])
    assert "right" in names(one)
    assert "wrong" not in names(one)
    assert "namespace not applied: peer=peer name=wrong" in caplog.text


@pytest.mark.parametrize("field", ["name", "tenant", "revision"])
def test_a_record_needs_every_field(field: str) -> None:
    _, exchange = made()
    message = record_message(record("one"))
    message.namespace.ClearField(field)  # type: ignore[arg-type]  # a field's name
    with pytest.raises(InvalidArgumentError) as caught:
        exchange.apply(message)
    assert caught.value.field == f"namespace.{field}"


def test_a_policy_of_more_zones_than_there_are_is_refused() -> None:
    _, exchange = made()
    message = record_message(replace(record("one"), policy=Policy(3)))
    with pytest.raises(KvorumError) as caught:
        exchange.apply(message)
    assert (caught.value.field, caught.value.limit) == ("policy.replicas", "0 to 2")


def test_what_is_too_much_for_one_message_goes_in_turns() -> None:
    """Goal: the most that a tenant can make fits into heartbeats, and every peer gets all of it.

    Method: 1,000 namespaces with the longest fingerprints that there are, and two peers.
    """
    (left, exchange), (right, right_exchange) = made(), made()
    texts = ("model", "weights_revision", "tokenizer", "adapter", "rope", "codec_class")
    longest = replace(OPAQUE, **dict.fromkeys(texts, "x" * limits.FINGERPRINT_TEXT_BYTES_MAX))  # type: ignore[arg-type]
    for number in range(1_000):
        one = replace(record(f"{number}"), fingerprint=longest)
        left.driver.tell(ApplyNamespace(one))
    for _ in range(2):
        for peer in ("right", "other"):
            page = exchange.messages(peer)
            response = replication_pb2.HelloResponse(namespaces=page)
            assert response.ByteSize() < limits.MESSAGE_BYTES_MAX
            if peer == "right":
                right_exchange.take_in("left", page)
    assert names(right) == names(left)
