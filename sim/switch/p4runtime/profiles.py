"""Action profiles and selectors: members, groups, and the sets of actions that table entries bring along.

A profile is filled either with members and groups, or by table entries with sets of actions ("one shot"); as
the specification demands, not both at a time. In the switch a set of actions is a group of members with
numbers of its own.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime.actions import decode_action, encode_action
from sim.switch.p4runtime.catalog import Catalog, Profile, asked, lookup
from sim.switch.p4runtime.status_errors import exhausted, invalid, not_found, unimplemented
from sim.switch.p4runtime.stores import EntityStore

Weights = tuple[tuple[int, int], ...]


class ActionProfiles(EntityStore):
    """The action profiles of a switch."""

    CHANGED = ("_groups", "_sets", "_next_number")

    def __init__(self, catalog: Catalog, switch: ControlPlane) -> None:
        self._catalog = catalog
        self._switch = switch
        # By profile: the messages that groups were made of, by group id; the members made for each set, by its group's number.
        self._groups: dict[int, dict[int, Any]] = {number: {} for number in catalog.profiles}
        self._sets: dict[int, dict[int, tuple[int, ...]]] = {number: {} for number in catalog.profiles}
        self._next_number = 1

    def insert_member(self, message: Any) -> None:
        """Add a member."""
        profile = self.by_hand(message.action_profile_id)
        member = _nonzero(message.member_id, "member")
        self._switch.member_insert(profile.name, member, *self._action(message, profile))

    def modify_member(self, message: Any) -> None:
        """Give a member another action."""
        profile = self.by_hand(message.action_profile_id)
        member = _nonzero(message.member_id, "member")
        self._switch.member_modify(profile.name, member, *self._action(message, profile))

    def delete_member(self, message: Any) -> None:
        """Remove a member that nothing points at."""
        profile = self.by_hand(message.action_profile_id)
        self._switch.member_delete(profile.name, _nonzero(message.member_id, "member"))

    def read_member(self, message: Any) -> Iterator[Any]:
        """Yield one member, all of a profile, or all."""
        found = []
        for profile in asked(self._catalog.profiles, message.action_profile_id, "action profile"):
            members = self._switch.members(profile.name) if not self._sets[profile.id] else {}
            for member, (action, params) in members.items():
                if message.member_id in (0, member):
                    answer = p4runtime_pb2.ActionProfileMember(
                        action_profile_id=profile.id,
                        member_id=member,
                        action=encode_action(action, params, self._catalog),
                    )
                    found.append(p4runtime_pb2.Entity(action_profile_member=answer))
        return iter(found)

    def insert_group(self, message: Any) -> None:
        """Add a group."""
        profile = self.by_hand(message.action_profile_id)
        group = _nonzero(message.group_id, "group")
        if message.max_size < 0 or (profile.max_group_size and message.max_size > profile.max_group_size):
            raise invalid(f"{profile.name}: expected max_size between 0 and {profile.max_group_size}")
        self._switch.group_insert(profile.name, group, _weights(message, message.max_size, profile))
        self._groups[profile.id][group] = deepcopy(message)

    def modify_group(self, message: Any) -> None:
        """Replace the members of a group."""
        profile = self.by_hand(message.action_profile_id)
        group = _nonzero(message.group_id, "group")
        if group not in self._groups[profile.id]:
            raise not_found(f"{profile.name} has no group {group}; use INSERT")
        max_size = self._groups[profile.id][group].max_size
        if message.max_size not in (0, max_size):
            raise invalid(f"{profile.name}: max_size of group {group} is {max_size} and cannot be changed")
        self._switch.group_modify(profile.name, group, _weights(message, max_size, profile))
        kept = deepcopy(message)
        kept.max_size = max_size
        self._groups[profile.id][group] = kept

    def delete_group(self, message: Any) -> None:
        """Remove a group that no table entry points at."""
        profile = self.by_hand(message.action_profile_id)
        group = _nonzero(message.group_id, "group")
        self._switch.group_delete(profile.name, group)
        del self._groups[profile.id][group]

    def read_group(self, message: Any) -> Iterator[Any]:
        """Yield one group, all of a profile, or all."""
        found = [
            p4runtime_pb2.Entity(action_profile_group=kept)
            for profile in asked(self._catalog.profiles, message.action_profile_id, "action profile")
            for group, kept in self._groups[profile.id].items()
            if message.group_id in (0, group)
        ]
        return iter(found)

    def by_hand(self, profile_id: int) -> Profile:
        """Return a profile that is filled with members and groups, not by table entries with sets of actions.

        Raises P4RuntimeError: INVALID_ARGUMENT: there is none, or table entries fill it.
        """
        profile = lookup(self._catalog.profiles, profile_id, "action profile")
        if self._sets[profile_id]:
            raise invalid(
                f"{profile.name} is filled by table entries with sets of actions; do not mix the ways"
            )
        return profile

    def add_set(self, profile_id: int, message: Any) -> int:
        """Put the actions of an `ActionProfileActionSet` into the switch and return their group's number."""
        profile, sets = self._catalog.profiles[profile_id], self._sets[profile_id]
        if not profile.selector:
            raise invalid(
                f"{profile.name} is an action profile without a selector; point at one of its members"
            )
        held = len(self._switch.members(profile.name))
        if not sets and (held or self._groups[profile_id]):
            raise invalid(f"{profile.name} holds members or groups, so table entries must point at those")
        actions = [self._action(each, profile) for each in message.action_profile_actions]
        weights = [each.weight for each in message.action_profile_actions]
        if not actions:
            raise unimplemented(f"{profile.name}: a set without actions is not supported; give at least one")
        if min(weights) <= 0:
            raise invalid(f"{profile.name}: weights of actions must be positive")
        if profile.max_group_size and sum(weights) > profile.max_group_size:
            raise exhausted(f"{profile.name}: the weights add up to more than {profile.max_group_size}")
        if profile.size and held + len(actions) > profile.size:
            raise exhausted(f"{profile.name} is full: it holds {profile.size} members")
        group, self._next_number = self._next_number, self._next_number + len(actions)
        numbers = tuple(range(group, self._next_number))
        for number, action in zip(numbers, actions, strict=True):
            self._switch.member_insert(profile.name, number, *action)
        self._switch.group_insert(profile.name, group, tuple(zip(numbers, weights, strict=True)))
        sets[group] = numbers
        return group

    def remove_set(self, profile_id: int, group: int) -> None:
        """Take a set of actions out of the switch again."""
        name = self._catalog.profiles[profile_id].name
        self._switch.group_delete(name, group)
        for number in self._sets[profile_id].pop(group):
            self._switch.member_delete(name, number)

    def _action(self, message: Any, profile: Profile) -> tuple[str, tuple[int, ...]]:
        if not message.HasField("action"):
            raise invalid(f"{profile.name}: the action is missing")
        action, params = decode_action(message.action, self._catalog)
        for table_id in profile.table_ids:
            if action.id not in self._catalog.tables[table_id].scopes:
                raise invalid(f"{profile.name}: {action.name} is no action of its tables")
        return action.name, params


def _weights(message: Any, max_size: int, profile: Profile) -> Weights:
    weights = tuple((each.member_id, each.weight) for each in message.members)
    if len({member for member, _ in weights}) < len(weights):
        raise invalid(f"{profile.name}: a member is twice in the group; use its weight")
    limit = max_size or profile.max_group_size
    if limit and sum(weight for _, weight in weights) > limit:
        raise exhausted(f"{profile.name}: the weights of the group add up to more than {limit}")
    return weights


def _nonzero(identifier: int, what: str) -> int:
    if identifier == 0:
        raise invalid(f"0 is no {what} id; ids are numbered from 1")
    return identifier
