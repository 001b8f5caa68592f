"""Action profiles and selectors: members, groups, and the sets of actions that table entries bring along.

A profile is filled either with members and groups, or by table entries with sets of actions ("one shot"); as
the specification demands, not both at a time. In the switch a set of actions is a group of members with
numbers of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime.actions import decode_action, encode_action
from sim.switch.p4runtime.catalog import Catalog, Profile, lookup
from sim.switch.p4runtime.errors import (
    already_exists,
    exhausted,
    failed_precondition,
    invalid,
    not_found,
    unimplemented,
)

Weights = tuple[tuple[int, int], ...]


@dataclass
class _State:
    """Contents of one profile."""

    profile: Profile
    # (action, parameters) by member id.
    members: dict[int, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    groups: dict[int, Any] = field(default_factory=dict)  # The messages they were made of, by group id.
    # The members made for each one-shot set, by group number.
    sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    # How many table entries point at ("member" or "group", id).
    users: Counter[tuple[str, int]] = field(default_factory=Counter)
    next_number: int = 1


class ActionProfiles:
    """The action profiles of a switch."""

    def __init__(self, catalog: Catalog, switch: ControlPlane) -> None:
        self._catalog = catalog
        self._switch = switch
        self._states = {profile.id: _State(profile) for profile in catalog.profiles.values()}

    def insert_member(self, message: Any) -> None:
        """Add a member."""
        state = self._manual(message.action_profile_id)
        name, member = state.profile.name, _nonzero(message.member_id, "member")
        action = self._action(message, state)
        if member in state.members:
            raise already_exists(f"{name} has a member {member} already; use MODIFY")
        if state.profile.size and len(state.members) >= state.profile.size:
            raise exhausted(f"{name} is full: it holds {state.profile.size} members")
        self._switch.member_insert(name, member, *action)
        state.members[member] = action

    def modify_member(self, message: Any) -> None:
        """Give a member another action."""
        state = self._manual(message.action_profile_id)
        member = self._existing_member(state, message)
        action = self._action(message, state)
        self._switch.member_modify(state.profile.name, member, *action)
        state.members[member] = action

    def delete_member(self, message: Any) -> None:
        """Remove a member that nothing points at."""
        state = self._manual(message.action_profile_id)
        name, member = state.profile.name, self._existing_member(state, message)
        if state.users["member", member]:
            raise failed_precondition(f"{name}: a table entry points at member {member}; delete that first")
        for group, kept in state.groups.items():
            if any(each.member_id == member for each in kept.members):
                raise failed_precondition(f"{name}: member {member} is in group {group}; take it out first")
        self._switch.member_delete(name, member)
        del state.members[member]

    def read_members(self, message: Any) -> Iterator[Any]:
        """Yield one member, all of a profile, or all."""
        found = []
        for state in self._selected(message.action_profile_id):
            if state.sets:
                continue
            for member, (action, params) in state.members.items():
                if message.member_id in (0, member):
                    answer = p4runtime_pb2.ActionProfileMember(
                        action_profile_id=state.profile.id,
                        member_id=member,
                        action=encode_action(action, params, self._catalog),
                    )
                    found.append(p4runtime_pb2.Entity(action_profile_member=answer))
        return iter(found)

    def insert_group(self, message: Any) -> None:
        """Add a group."""
        state = self._manual(message.action_profile_id)
        profile, group = state.profile, _nonzero(message.group_id, "group")
        if not profile.selector:
            raise invalid(
                f"{profile.name} is an action profile without a selector: it has members, but no groups"
            )
        if message.max_size < 0 or (profile.max_group_size and message.max_size > profile.max_group_size):
            raise invalid(f"{profile.name}: expected max_size between 0 and {profile.max_group_size}")
        if group in state.groups:
            raise already_exists(f"{profile.name} has a group {group} already; use MODIFY")
        self._switch.group_insert(profile.name, group, self._weights(message, message.max_size, state))
        state.groups[group] = deepcopy(message)

    def modify_group(self, message: Any) -> None:
        """Replace the members of a group."""
        state = self._manual(message.action_profile_id)
        group = self._existing_group(state, message)
        max_size = state.groups[group].max_size
        if message.max_size not in (0, max_size):
            raise invalid(
                f"{state.profile.name}: max_size of group {group} is {max_size} and cannot be changed"
            )
        self._switch.group_modify(state.profile.name, group, self._weights(message, max_size, state))
        kept = deepcopy(message)
        kept.max_size = max_size
        state.groups[group] = kept

    def delete_group(self, message: Any) -> None:
        """Remove a group that no table entry points at."""
        state = self._manual(message.action_profile_id)
        name, group = state.profile.name, self._existing_group(state, message)
        if state.users["group", group]:
            raise failed_precondition(f"{name}: a table entry points at group {group}; delete that first")
        self._switch.group_delete(name, group)
        del state.groups[group]

    def read_groups(self, message: Any) -> Iterator[Any]:
        """Yield one group, all of a profile, or all."""
        found = []
        for state in self._selected(message.action_profile_id):
            for group, kept in state.groups.items():
                if message.group_id in (0, group):
                    found.append(p4runtime_pb2.Entity(action_profile_group=deepcopy(kept)))
        return iter(found)

    def check_target(self, profile_id: int, kind: str, identifier: int) -> None:
        """Check that a table entry may point at a member or group ("member", "group"), without counting it.

        Raises P4RuntimeError: NOT_FOUND or INVALID_ARGUMENT.
        """
        state = self._manual(profile_id)
        if identifier not in (state.members if kind == "member" else state.groups):
            raise not_found(f"{state.profile.name} has no {kind} {identifier}; insert it first")

    def count(self, profile_id: int, kind: str, identifier: int, change: int) -> None:
        """Note that `change` more table entries point at a member or group."""
        self._states[profile_id].users[kind, identifier] += change

    def add_set(self, profile_id: int, message: Any) -> int:
        """Put the actions of an `ActionProfileActionSet` into the switch and return their group's number."""
        state = self._states[profile_id]
        profile = state.profile
        if not profile.selector:
            raise invalid(
                f"{profile.name} is an action profile without a selector; point at one of its members"
            )
        if not state.sets and (state.members or state.groups):
            raise invalid(f"{profile.name} holds members or groups, so table entries must point at those")
        actions = [self._action(each, state) for each in message.action_profile_actions]
        weights = [each.weight for each in message.action_profile_actions]
        if not actions:
            raise unimplemented(f"{profile.name}: a set without actions is not supported; give at least one")
        if min(weights) <= 0:
            raise invalid(f"{profile.name}: weights of actions must be positive")
        if profile.max_group_size and sum(weights) > profile.max_group_size:
            raise exhausted(f"{profile.name}: the weights add up to more than {profile.max_group_size}")
        if profile.size and len(state.members) + len(actions) > profile.size:
            raise exhausted(f"{profile.name} is full: it holds {profile.size} members")
        numbers = tuple(range(state.next_number, state.next_number + len(actions)))
        group = state.next_number
        state.next_number += len(actions)
        for number, action in zip(numbers, actions, strict=True):
            self._switch.member_insert(profile.name, number, *action)
            state.members[number] = action
        self._switch.group_insert(profile.name, group, tuple(zip(numbers, weights, strict=True)))
        state.sets[group] = numbers
        return group

    def remove_set(self, profile_id: int, group: int) -> None:
        """Take a set of actions out of the switch again."""
        state = self._states[profile_id]
        numbers = state.sets.pop(group)
        self._switch.group_delete(state.profile.name, group)
        for number in numbers:
            self._switch.member_delete(state.profile.name, number)
            del state.members[number]

    def save(self) -> Any:
        """Return what `restore` takes."""
        return {
            number: replace(
                state,
                members=dict(state.members),
                groups=dict(state.groups),
                sets=dict(state.sets),
                users=Counter(state.users),
            )
            for number, state in self._states.items()
        }

    def restore(self, saved: Any) -> None:
        """Restore a saved state, which cannot be used afterwards."""
        self._states = saved

    def _selected(self, profile_id: int) -> Iterable[_State]:
        if profile_id == 0:
            return self._states.values()
        return [self._states[lookup(self._catalog.profiles, profile_id, "action profile").id]]

    def _manual(self, profile_id: int) -> _State:
        state = self._states[lookup(self._catalog.profiles, profile_id, "action profile").id]
        if state.sets:
            raise invalid(
                f"{state.profile.name} is filled by table entries with sets of actions; do not mix the ways"
            )
        return state

    def _existing_member(self, state: _State, message: Any) -> int:
        member = _nonzero(message.member_id, "member")
        if member not in state.members:
            raise not_found(f"{state.profile.name} has no member {member}; use INSERT")
        return member

    def _existing_group(self, state: _State, message: Any) -> int:
        group = _nonzero(message.group_id, "group")
        if group not in state.groups:
            raise not_found(f"{state.profile.name} has no group {group}; use INSERT")
        return group

    def _action(self, message: Any, state: _State) -> tuple[str, tuple[int, ...]]:
        if not message.HasField("action"):
            raise invalid(f"{state.profile.name}: the action is missing")
        action, params = decode_action(message.action, self._catalog)
        for table_id in state.profile.table_ids:
            if action.id not in self._catalog.tables[table_id].scopes:
                raise invalid(f"{state.profile.name}: {action.name} is no action of its tables")
        return action.name, params

    def _weights(self, message: Any, max_size: int, state: _State) -> Weights:
        name = state.profile.name
        weights = tuple((each.member_id, each.weight) for each in message.members)
        if len({member for member, _ in weights}) < len(weights):
            raise invalid(f"{name}: a member is twice in the group; use its weight")
        for member, weight in weights:
            if member not in state.members:
                raise not_found(f"{name} has no member {member}; insert it first")
            if weight <= 0:
                raise invalid(f"{name}: the weight of member {member} must be positive")
        limit = max_size or state.profile.max_group_size
        if limit and sum(weight for _, weight in weights) > limit:
            raise exhausted(f"{name}: the weights of the group add up to more than {limit}")
        return weights


def _nonzero(identifier: int, what: str) -> int:
    if identifier == 0:
        raise invalid(f"0 is no {what} id; ids are numbered from 1")
    return identifier
