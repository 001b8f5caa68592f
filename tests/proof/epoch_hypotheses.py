"""The proof's hypotheses on epochs, checked on every table write of a controller: `issue`, `write_entry`, `end`, `delete_entry`.

An epoch is a number with the job and the slots that its first entry has. It is issued with that entry, and ends with the
first of its entries that is deleted.
"""

from dataclasses import dataclass, field

from controller.entries import WORKER_ADMISSION, Entry
from controller.table_writer import Change, Key


@dataclass(frozen=True)
class Epoch:
    """An epoch as a switch's entries show it."""

    number: int
    job_id: int
    token: int
    pool_base: int
    pool_indices: int

    @classmethod
    def of(cls, entry: Entry) -> "Epoch":
        """Return the epoch of an entry of `worker_admission`."""
        given, match = dict(entry.params), dict(entry.match)
        job_id, token = match["job_id"], match["token"]
        assert isinstance(job_id, int)
        assert isinstance(token, int)
        return cls(given["epoch"], job_id, token, given["pool_base"], given["pool_indices"])

    def shares_slots(self, other: "Epoch") -> bool:
        """Whether two epochs have a slot in common."""
        return (
            self.pool_base < other.pool_base + other.pool_indices
            and other.pool_base < self.pool_base + self.pool_indices
        )


@dataclass
class Hypotheses:
    """The epochs of one switch since its registers were last zeroed, and what was not as the proof assumes."""

    issued: dict[int, Epoch] = field(default_factory=dict)
    ended: set[Epoch] = field(default_factory=set)
    admitted: dict[Key, Epoch] = field(default_factory=dict)
    written: int = 0
    broken: list[str] = field(default_factory=list)

    def zero(self) -> None:
        """The switch restarts, or its pipeline is set: no entry and no register is left."""
        self.issued.clear()
        self.ended.clear()
        self.admitted.clear()

    def write(self, entry: Entry) -> None:
        """An entry is inserted."""
        epoch = Epoch.of(entry)
        self.written += 1
        if epoch.number not in self.issued:
            self._expect(epoch.number != 0, f"issue: epoch 0 for {epoch}")
            self.issued[epoch.number] = epoch
        known = self.issued[epoch.number]
        self._expect(known == epoch, f"issue: the number of {known} for {epoch}")
        self._expect(epoch not in self.ended, f"write_entry: {epoch} has ended")
        for other in set(self.admitted.values()) - {epoch}:
            self._expect(not other.shares_slots(epoch), f"write_entry: {epoch} beside {other}")
        self.admitted[entry.key] = epoch

    def delete(self, entry: Entry) -> None:
        """An entry is deleted."""
        self.ended.add(self.admitted.pop(entry.key))

    def change(self, change: Change, entry: Entry) -> None:
        """An entry of any table is changed."""
        if entry.table != WORKER_ADMISSION or not entry.match:
            return
        if change is not Change.INSERT:
            self.delete(entry)
        if change is not Change.DELETE:
            self.write(entry)

    def _expect(self, holds: bool, words: str) -> None:
        if not holds:
            self.broken.append(words)
