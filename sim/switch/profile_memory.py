"""One action profile's members and groups: as the control plane wrote them, and as arrays for machine code."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.switch import ir
from sim.switch.action_words import find_action, pack_action
from sim.switch.switch_errors import DuplicateError, EntryError, FullError, InUseError, UnknownNameError
from sim.switch.table_layout import member_words

_M64 = (1 << 64) - 1


class ProfileMemory:
    """The members and groups of one action profile.

    Members and groups have the numbers the control plane gave them; machine code knows them by index. Member 0 has no
    action: an empty group leads to it.
    """

    def __init__(self, program: ir.Program, profile: ir.ActionProfile) -> None:
        self.program = program
        self.profile = profile
        self.dirty = True
        self.actions = tuple(
            dict.fromkeys(a for t in program.tables.values() if t.profile == profile.name for a in t.actions)
        )
        self.members: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}
        self._indices: dict[int, int] = {}
        self._group_indices: dict[int, int] = {}
        self._records = np.zeros((2, member_words(program, profile.name)), np.uint64)
        self._records[0, 0] = _M64
        self._spans = np.zeros((1, 2), np.uint64)
        self._lists = np.zeros(1, np.uint64)

    def member_index(self, member: int) -> int:
        """Return the index of a member, or raise `UnknownNameError`."""
        if member not in self._indices:
            raise UnknownNameError(f"action profile {self.profile.name} has no member {member}")
        return self._indices[member]

    def group_index(self, group: int) -> int:
        """Return the index of a group, or raise `UnknownNameError`."""
        if group not in self._group_indices:
            raise UnknownNameError(f"action profile {self.profile.name} has no group {group}")
        return self._group_indices[group]

    def insert_member(self, member: int, action: str, params: tuple[int, ...]) -> None:
        """Add a member. Raises DuplicateError if it is there. Raises FullError if the profile holds as many as it can."""
        if member in self._indices:
            raise DuplicateError(f"action profile {self.profile.name} has a member {member}")
        if len(self.members) >= self.profile.size:
            raise FullError(
                f"action profile {self.profile.name} is full: it holds {self.profile.size} members"
            )
        record = self._pack(action, params)
        taken = set(self._indices.values())
        index = next(n for n in range(1, len(taken) + 2) if n not in taken)
        if index >= len(self._records):
            self._records = np.concatenate([self._records, np.zeros_like(self._records)])
        self._indices[member] = index
        self._write(member, action, params, record)

    def modify_member(self, member: int, action: str, params: tuple[int, ...]) -> None:
        """Give a member another action."""
        self.member_index(member)
        self._write(member, action, params, self._pack(action, params))

    def delete_member(self, member: int) -> None:
        """Remove a member that no group holds.

        Raises UnknownNameError if it is not there. Raises EntryError if a group holds it.
        """
        index = self.member_index(member)
        holder = next((g for g, held in self.groups.items() if any(m == member for m, _ in held)), None)
        if holder is not None:
            raise InUseError(f"member {member} of {self.profile.name} is in group {holder}")
        self._records[index] = 0
        self._records[index, 0] = _M64
        del self._indices[member], self.members[member]
        self.dirty = True

    def set_group(self, group: int, members: tuple[tuple[int, int], ...], *, new: bool) -> None:
        """Add a group, or replace its (member, weight) pairs.

        Raises DuplicateError if a new one is there. Raises UnknownNameError if one that is not new, or a member, is not
        there. Raises EntryError if the profile has no selector, or a weight is below 1.
        """
        if self.profile.selector is None:
            raise EntryError(f"action profile {self.profile.name} has no selector, so no groups")
        if new == (group in self._group_indices):
            if new:
                raise DuplicateError(f"action profile {self.profile.name} has a group {group}")
            self.group_index(group)
        for member, weight in members:
            self.member_index(member)
            if weight < 1:
                raise EntryError(f"member {member} has the weight {weight}, which must be at least 1")
        if new:
            taken = set(self._group_indices.values())
            self._group_indices[group] = next(n for n in range(len(taken) + 1) if n not in taken)
        self.groups[group] = members
        self.dirty = True

    def delete_group(self, group: int) -> None:
        """Remove a group."""
        self.group_index(group)
        del self._group_indices[group], self.groups[group]
        self.dirty = True

    def _pack(self, action: str, params: tuple[int, ...]) -> list[int]:
        return pack_action(find_action(self.program, self.actions, action, self.profile.name), params)

    def _write(self, member: int, action: str, params: tuple[int, ...], record: list[int]) -> None:
        index = self._indices[member]
        self._records[index] = 0
        self._records[index, : len(record)] = np.array(record, np.uint64)
        self.members[member] = (action, params)
        self.dirty = True

    def addresses(self) -> list[int]:
        """Return the addresses of the members, the groups' (first, count) pairs and the groups' members."""
        if self.dirty:
            spans = np.zeros((max(self._group_indices.values(), default=0) + 1, 2), np.uint64)
            members: list[int] = []
            for group, held in self.groups.items():
                indices = [self._indices[m] for m, weight in held for _ in range(weight)]
                spans[self._group_indices[group]] = (len(members), len(indices))
                members += indices
            self._spans, self._lists = spans, np.array([*members, 0], np.uint64)
            self.dirty = False
        return [int(a.ctypes.data) for a in self.arrays()]

    def arrays(self) -> list[NDArray[Any]]:
        """Return the arrays at these addresses."""
        return [self._records, self._spans, self._lists]
