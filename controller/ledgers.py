"""The jobs of several switches; a job has one id, epoch, token and number of slots on all of its switches. No I/O."""

from collections.abc import Mapping, Sequence

from controller.errors import JobRefusedError
from controller.jobs import Job, Reservation
from controller.ledger import JobLedger
from controller.slots import SlotRange
from controller.trees import Tree


class Ledgers:
    """The ledgers of a controller's switches; a job is on all of its switches or on none.

    `by_switch`: the ledger of each switch, by the switch's name; the mapping is only read here, and its owner may change it.
    """

    def __init__(self, by_switch: Mapping[str, JobLedger]) -> None:
        self._by_switch = by_switch

    def load(self, switch: str) -> float:
        """Return the fraction of a switch's slots that jobs hold."""
        ledger = self._by_switch[switch]
        return 1 - ledger.free_slots / ledger.capacity

    def reserve(self, name: str, switches: Sequence[str], slots: int) -> dict[str, Reservation]:
        """Reserve one job id, and slots on each of a job's switches.

        Returns the reservations by switch, in the given order. Raises JobRefusedError with the reason; nothing is reserved
        then.
        """
        ledgers = [self._by_switch[switch] for switch in switches]
        common = set.intersection(*(set(ledger.free_job_ids) for ledger in ledgers))
        job_id = min(common) if common else None
        if job_id is None and len(switches) > 1:
            raise JobRefusedError(f"no job id is free on all of {', '.join(switches)}: end a job first")
        held: dict[str, Reservation] = {}
        try:
            for switch, ledger in zip(switches, ledgers, strict=True):
                held[switch] = ledger.reserve(name, slots, job_id)
        except JobRefusedError as refusal:
            self.discard(name, held)
            where = f"switch {switches[len(held)]}: " if len(switches) > 1 else ""
            raise JobRefusedError(f"{where}{refusal}") from None
        return held

    def renew(
        self,
        name: str,
        tree: Tree,
        slots: int,
        *,
        token: int,
        unix_seconds: int,
        quorum: int = 0,
        last_epoch: int = 0,
    ) -> dict[str, Job]:
        """Give a job its next epoch on all switches of its tree, where its slots are reserved or held.

        `tree`: the switches, and the children that each adds for. `token`: 32 random bits that differ from the present token.
        `quorum`: contributions that complete a quorum chunk; 0: no quorum. `last_epoch`: the last epoch that the job's workers
        know, perhaps of other switches. Returns the job's part on each switch, the root first. Raises JobRefusedError if a
        switch cannot admit its part.
        """
        last = max(last_epoch, *(self._by_switch[branch.switch].last_epoch for branch in tree.branches))
        epoch = max(last + 1, unix_seconds)
        parts = {}
        for branch in tree.branches:
            ledger = self._by_switch[branch.switch]
            present = next((job for job in ledger.jobs if job.name == name), None)
            if present is not None:
                parts[branch.switch] = ledger.renew(
                    present, token=token, unix_seconds=epoch, workers=branch.children, parent=branch.parent
                )
            else:
                parts[branch.switch] = ledger.admit(
                    name,
                    branch.children,
                    slots,
                    switch=None,
                    token=token,
                    unix_seconds=epoch,
                    parent=branch.parent,
                    quorum=quorum,
                )
        return parts

    def resize(self, name: str, switches: Sequence[str], slots: int) -> dict[str, SlotRange]:
        """Change a job's slots on each of its switches to `slots`, or to the most that all switches have for it if fewer."""
        ranges = {switch: self._by_switch[switch].resize(name, slots) for switch in switches}
        count = min(held.count for held in ranges.values())
        for switch, held in ranges.items():
            if held.count > count:
                ranges[switch] = self._by_switch[switch].resize(name, count)
        return ranges

    def would_have(self, name: str, switches: Sequence[str], slots: int) -> int:
        """Return how many slots, at most `slots`, `resize` would give a job now."""
        return min(self._by_switch[switch].would_have(name, slots) for switch in switches)

    def discard(self, name: str, switches: Mapping[str, object]) -> None:
        """Free a job's id and slots on switches; switches that are gone are skipped."""
        for switch in switches:
            if switch in self._by_switch:
                self._by_switch[switch].discard(name)
