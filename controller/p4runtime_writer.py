"""Table writes over a P4Runtime session."""

from collections.abc import Collection, Sequence

from controller.entries import Entry, MulticastGroup
from controller.errors import SwitchRefusedError
from controller.p4info import group_message, read_group
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession, Update
from controller.table_writer import Change, Key

_TYPES = {Change.INSERT: Update.INSERT, Change.MODIFY: Update.MODIFY, Change.DELETE: Update.DELETE}


class P4RuntimeWriter:
    """The `TableWriter` of a switch that serves P4Runtime.

    `files`: the program that the switch runs, or will get from `set_pipeline`.
    """

    def __init__(self, session: P4RuntimeSession, files: CompiledFiles) -> None:
        self.session = session
        self._files = files
        self._names = files.names
        self._groups: set[int] = set()

    @property
    def tables(self) -> Collection[str]:
        return self._names.tables

    def cookie(self) -> int:
        """Return the cookie that the switch's program was set with; 0 if it has no program, or no cookie."""
        return self.session.pipeline_cookie()

    def set_pipeline(self, cookie: int = 0) -> None:
        """Give the switch its program; it starts without entries.

        `cookie`: a number that the switch keeps for as long as it keeps its program.
        """
        self.session.configure(self._files.p4info, self._files.device_config(), cookie)
        self._groups.clear()

    def write(self, change: Change, changed: Sequence[Entry], what: str) -> None:
        messages = [self._names.entry_message(one) for one in changed]
        self.session.apply(_TYPES[change], messages, f"{change.value} for {what}")

    def read(self, table: str) -> list[Entry]:
        found = self.session.fetch([self._names.table_message(table)], f"reading table {table}")
        return [self._names.read_entry(entity) for entity in found]

    def set_group(self, group: MulticastGroup, what: str) -> None:
        message = [group_message(group)]
        purpose = f"the multicast group of {what}"
        if group.group_id in self._groups:
            self.session.apply(Update.MODIFY, message, purpose)
            return
        try:
            self.session.apply(Update.INSERT, message, purpose)
        except SwitchRefusedError:  # Another controller left the group, on a switch that cannot list groups.
            self.session.apply(Update.MODIFY, message, purpose)
        self._groups.add(group.group_id)

    def delete_groups(self, group_ids: Collection[int], what: str) -> None:
        known = self._groups.intersection(group_ids)
        self.session.apply(
            Update.DELETE, [group_message(MulticastGroup(each, ())) for each in sorted(known)], what
        )
        self._groups -= known

    def groups(self) -> dict[int, MulticastGroup]:
        try:
            answers = self.session.fetch([group_message(MulticastGroup(0, ()))], "reading multicast groups")
        except SwitchRefusedError:
            return {}
        held = {group.group_id: group for group in map(read_group, answers)}
        self._groups = set(held)
        return held

    def counters(self, names: Sequence[str], indexes: Sequence[int]) -> dict[int, dict[str, int]]:
        asked = [self._names.counter_message(name, index) for index in indexes for name in names]
        counted: dict[int, dict[str, int]] = {index: {} for index in indexes}
        for answer in self.session.fetch(asked, "reading counters") if asked else ():
            name, index, packets = self._names.read_counter(answer)
            counted[index][name] = packets
        return counted

    def reset_counters(self, names: Sequence[str], index: int) -> None:
        zeros = [self._names.counter_message(name, index) for name in names]
        for zero in zeros:
            zero.counter_entry.data.packet_count = 0
        self.session.apply(Update.MODIFY, zeros, "resetting counters")

    def entry_counts(self, counted: Sequence[Entry]) -> dict[Key, int]:
        if not counted or not self._names.counts_entries(counted[0].table):
            return {}
        asked = [self._names.entry_counter_message(one) for one in counted]
        answers = self.session.fetch(asked, "reading the counters of entries")
        found = map(self._names.read_entry_counter, answers)
        return {(counted[0].table, tuple(key.items())): packets for key, packets in found}
