"""Action profiles and selectors over gRPC: members, groups, one-shot sets."""

from collections import Counter
from random import Random
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from tests.sim.p4runtime.p4runtime_client import DELETE, INSERT, MODIFY, PROFILE, Bench, fields


def member(bench: Bench, profile: str, identifier: int, *action: Any) -> p4runtime_pb2.ActionProfileMember:
    entry = p4runtime_pb2.ActionProfileMember(action_profile_id=bench.id(profile), member_id=identifier)
    if action:
        entry.action.CopyFrom(bench.action(*action))
    return entry


def group(
    bench: Bench, identifier: int, *members: tuple[int, int], profile: str = "spread", max_size: int = 0
) -> p4runtime_pb2.ActionProfileGroup:
    entry = p4runtime_pb2.ActionProfileGroup(
        action_profile_id=bench.id(profile), group_id=identifier, max_size=max_size
    )
    for member_id, weight in members:
        entry.members.add(member_id=member_id, weight=weight)
    return entry


def pointing(bench: Bench, table: str, b: int, **target: Any) -> p4runtime_pb2.TableEntry:
    entry = bench.entry(table, {1: b})
    for name, value in target.items():
        setattr(entry.action, name, value)
    return entry


def test_members(bench: Bench) -> None:
    bench.write(
        INSERT, member(bench, "profile", 10, "forward", 1), member(bench, "profile", 20, "forward", 2)
    )
    entry = pointing(bench, "profile_table", 7, action_profile_member_id=10)
    bench.write(INSERT, entry)
    assert bench.one(PROFILE, b=7)[0] == 1
    assert bench.read(entry) == [entry]
    bench.write(MODIFY, member(bench, "profile", 10, "mark_and_forward", 9, 3))
    assert bench.one(PROFILE, b=7) == (3, fields(PROFILE, b=7, mark=9))
    assert bench.read(member(bench, "profile", 10)) == [
        member(bench, "profile", 10, "mark_and_forward", 9, 3)
    ]
    assert len(bench.read(p4runtime_pb2.ActionProfileMember())) == 2

    assert bench.refused(DELETE, member(bench, "profile", 10))[0] == "FAILED_PRECONDITION"
    bench.write(MODIFY, pointing(bench, "profile_table", 7, action_profile_member_id=20))
    assert bench.one(PROFILE, b=7)[0] == 2
    bench.write(DELETE, member(bench, "profile", 10))
    bench.write(DELETE, bench.entry("profile_table", {1: 7}))
    bench.write(DELETE, member(bench, "profile", 20))
    assert bench.read(p4runtime_pb2.ActionProfileMember()) == []


def test_wrong_members_are_refused(bench: Bench) -> None:
    bench.write(INSERT, member(bench, "profile", 1, "forward", 1))
    assert bench.refused(INSERT, member(bench, "profile", 1, "forward", 1))[0] == "ALREADY_EXISTS"
    assert bench.refused(INSERT, member(bench, "profile", 0, "forward", 1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, member(bench, "profile", 2))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, member(bench, "profile", 2, "drop"))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, member(bench, "profile", 2, "forward", 512))[0] == "OUT_OF_RANGE"
    assert bench.refused(MODIFY, member(bench, "profile", 2, "forward", 1))[0] == "NOT_FOUND"
    assert bench.refused(DELETE, member(bench, "profile", 2))[0] == "NOT_FOUND"
    unknown = p4runtime_pb2.ActionProfileMember(action_profile_id=1, member_id=1)
    assert bench.refused(INSERT, unknown)[0] == "INVALID_ARGUMENT"
    missing = pointing(bench, "profile_table", 7, action_profile_member_id=2)
    assert bench.refused(INSERT, missing)[0] == "NOT_FOUND"
    bench.write(INSERT, *(member(bench, "profile", n, "forward", 1) for n in range(2, 17)))
    assert bench.refused(INSERT, member(bench, "profile", 99, "forward", 1))[0] == "RESOURCE_EXHAUSTED"


def ports_used(bench: Bench, b: int, count: int = 200) -> Counter[int]:
    """The ports by which packets leave. CRC is linear, so only values far apart reach every member."""
    random = Random(1)
    return Counter(bench.one(PROFILE, b=b, d=random.getrandbits(48))[0] for _ in range(count))


def test_groups_spread_over_their_members(bench: Bench) -> None:
    bench.write(INSERT, *(member(bench, "spread", n, "forward", n) for n in (1, 2, 3)))
    bench.write(INSERT, group(bench, 5, (1, 1), (2, 3), max_size=4))
    entry = pointing(bench, "selector_table", 7, action_profile_group_id=5)
    bench.write(INSERT, entry)
    assert set(ports_used(bench, 7)) == {1, 2}
    assert bench.read(entry) == [entry]
    assert bench.read(group(bench, 5)) == [group(bench, 5, (1, 1), (2, 3), max_size=4)]
    bench.write(MODIFY, group(bench, 5, (3, 2), (1, 2)))
    assert set(ports_used(bench, 7)) == {1, 3}
    assert bench.read(p4runtime_pb2.ActionProfileGroup()) == [group(bench, 5, (3, 2), (1, 2), max_size=4)]
    assert bench.refused(DELETE, group(bench, 5))[0] == "FAILED_PRECONDITION"
    assert bench.refused(DELETE, member(bench, "spread", 3))[0] == "FAILED_PRECONDITION"
    bench.write(DELETE, member(bench, "spread", 2))
    bench.write(MODIFY, pointing(bench, "selector_table", 7, action_profile_member_id=3))
    assert set(ports_used(bench, 7)) == {3}
    bench.write(DELETE, group(bench, 5))


def test_weights_are_shares(bench: Bench) -> None:
    bench.write(INSERT, *(member(bench, "spread", n, "forward", n) for n in (1, 2)))
    bench.write(INSERT, group(bench, 5, (1, 1), (2, 7)))
    bench.write(INSERT, pointing(bench, "selector_table", 7, action_profile_group_id=5))
    used = ports_used(bench, 7, 800)
    assert 60 <= used[1] <= 140
    assert used[1] + used[2] == 800


def test_wrong_groups_are_refused(bench: Bench) -> None:
    bench.write(INSERT, *(member(bench, "spread", n, "forward", n) for n in (1, 2)))
    bench.write(INSERT, group(bench, 5, (1, 1), max_size=3))
    assert bench.refused(INSERT, group(bench, 5))[0] == "ALREADY_EXISTS"
    assert bench.refused(INSERT, group(bench, 0))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, (9, 1)))[0] == "NOT_FOUND"
    assert bench.refused(INSERT, group(bench, 6, (1, 0)))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, (1, 1), (1, 1)))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, (1, 9)))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(INSERT, group(bench, 6, max_size=9))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, max_size=-1))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, group(bench, 6, profile="profile"))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, group(bench, 5, (1, 2), (2, 2)))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(MODIFY, group(bench, 5, max_size=4))[0] == "INVALID_ARGUMENT"
    assert bench.refused(MODIFY, group(bench, 6))[0] == "NOT_FOUND"
    assert bench.refused(DELETE, group(bench, 6))[0] == "NOT_FOUND"
    missing = pointing(bench, "selector_table", 7, action_profile_group_id=6)
    assert bench.refused(INSERT, missing)[0] == "NOT_FOUND"


def one_shot(bench: Bench, b: int, *actions: Any, **watch: Any) -> p4runtime_pb2.TableEntry:
    entry = bench.entry("one_shot_table", {1: b})
    for weight, *action in actions:
        each = entry.action.action_profile_action_set.action_profile_actions.add(weight=weight, **watch)
        each.action.CopyFrom(bench.action(*action))
    return entry


def test_sets_of_actions(bench: Bench) -> None:
    entry = one_shot(bench, 7, (1, "forward", 1), (2, "forward", 2), watch_port=b"\x01")
    bench.write(INSERT, entry)
    assert set(ports_used(bench, 7)) == {1, 2}
    assert bench.read(entry) == [entry]
    entry = one_shot(bench, 7, (1, "forward", 3), (1, "forward", 3))
    bench.write(MODIFY, entry)
    assert set(ports_used(bench, 7, 20)) == {3}
    assert bench.read(bench.entry("one_shot_table")) == [entry]
    # The switch's own entries are none of a controller's.
    assert bench.read(p4runtime_pb2.ActionProfileMember()) == []
    assert bench.read(p4runtime_pb2.ActionProfileGroup()) == []
    bench.write(DELETE, entry)
    assert set(ports_used(bench, 7, 20)) == {0}


def test_sets_are_cleaned_up(bench: Bench) -> None:
    """The profile holds 32 members; if any were left behind it would soon be full."""
    for round_ in range(50):
        entry = one_shot(bench, round_ + 1, *((1, "forward", n) for n in range(1, 9)))
        bench.write(INSERT, entry)
        bench.write(MODIFY, entry)
        assert bench.refused(INSERT, entry)[0] == "ALREADY_EXISTS"
        bench.write(DELETE, entry)


def test_wrong_sets_are_refused(bench: Bench) -> None:
    assert bench.refused(INSERT, one_shot(bench, 7, (9, "forward", 1)))[0] == "RESOURCE_EXHAUSTED"
    assert bench.refused(INSERT, one_shot(bench, 7, (0, "forward", 1)))[0] == "INVALID_ARGUMENT"
    assert bench.refused(INSERT, one_shot(bench, 7, (1, "drop")))[0] == "INVALID_ARGUMENT"
    empty = bench.entry("one_shot_table", {1: 7})
    empty.action.action_profile_action_set.SetInParent()
    assert bench.refused(INSERT, empty)[0] == "UNIMPLEMENTED"
    plain = bench.entry("profile_table", {1: 7})
    plain.action.CopyFrom(one_shot(bench, 7, (1, "forward", 1)).action)
    assert bench.refused(INSERT, plain)[0] == "INVALID_ARGUMENT"


def test_the_two_ways_to_fill_a_selector_do_not_mix(bench: Bench) -> None:
    entry = one_shot(bench, 7, (1, "forward", 1))
    bench.write(INSERT, entry)
    manual = member(bench, "one_shot_spread", 1, "forward", 1)
    assert bench.refused(INSERT, manual)[0] == "INVALID_ARGUMENT"
    bench.write(DELETE, entry)
    bench.write(INSERT, manual)
    assert bench.refused(INSERT, entry)[0] == "INVALID_ARGUMENT"
