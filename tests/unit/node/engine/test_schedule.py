"""The queue behind ages, leases and expiry, against a dictionary that is sorted each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvorum.node.engine.schedule import Schedule

STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "discard", "pop"]), st.integers(0, 8), st.integers(0, 20)),
    max_size=200,
)


@given(STEPS)
def test_the_least_due_member_comes_first(steps: list[tuple[str, int, int]]) -> None:
    schedule: Schedule[int] = Schedule()
    model: dict[int, int] = {}
    for step, member, due in steps:
        if step == "set":
            schedule.set(member, due)
            model[member] = due
        elif step == "discard":
            schedule.discard(member)
            model.pop(member, None)
        else:
            popped = schedule.pop_due(due)
            if popped is None:
                assert all(one > due for one in model.values())
            else:
                least = min(model.values())
                assert model.pop(popped) == least <= due
        assert len(schedule) == len(model)
        assert set(schedule) == set(model)
        head = schedule.first()
        assert (head is None) == (not model)
        if head is not None:
            assert head[1] == model[head[0]] == min(model.values())


def test_equals_come_in_the_order_in_which_they_came() -> None:
    schedule: Schedule[str] = Schedule()
    for member in "cab":
        schedule.set(member, 5)
    assert [schedule.pop_due(5) for _ in range(3)] == ["c", "a", "b"]


def test_putting_off_and_taking_out_leaves_no_garbage() -> None:
    """Goal: memory follows the members, whatever was done with them before."""
    schedule: Schedule[int] = Schedule()
    for step in range(10_000):
        schedule.set(step % 10, 100_000 - step)  # ever earlier: each needs a new place
        schedule.discard((step + 5) % 10)
    assert len(schedule._heap) <= 2 * len(schedule) + 64
