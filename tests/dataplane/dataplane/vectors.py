"""Test vectors of the protocol: packets in and packets out, as JSON and pcap; ``python -m tests.dataplane.dataplane.vectors``.

They are recorded from tests of this suite on the embedded switch. ``test_vectors.py`` compares the files with a new recording
and plays them against every target.
"""

import itertools
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.dataplane import (
    test_header_only,
    test_quorum,
    test_slot_exponent,
    test_slot_header_only,
    test_slot_mismatch,
    test_slot_operations,
    test_slot_probe,
    test_slot_reduction,
    test_slot_retransmission,
    test_worker_admission,
)

from .embedded import EmbeddedTarget
from .frames import MAX, SUM
from .jobs import SWITCH_IP, SWITCH_MAC, Job
from .target import Entry, Packet, Target

FOLDER = Path(__file__).parents[1] / "vectors"
LANES = 64
FIRST_TOKEN = 0x80000001
SLOTS_OF_A_VECTOR = 4
ETHERNET_LINK = 1

Event = dict[str, Any]

RECORDED: dict[str, Callable[..., None]] = {
    "sum-of-three": partial(
        test_slot_reduction.test_last_contribution_leaves_as_the_result_of_all, workers=3
    ),
    "chunk-half-the-numbers-later": test_slot_reduction.test_chunks_may_be_skipped_up_to_half_the_number_space,
    "two-jobs": test_slot_reduction.test_jobs_at_once_do_not_touch_each_other,
    "operations": test_slot_operations.test_operation_of_one_chunk_is_not_that_of_the_next,
    "exponents": partial(test_slot_exponent.test_largest_wins_in_any_order, exponents=(0xFFFF, 7, 0)),
    "exponent-of-next-chunk": test_slot_exponent.test_next_chunk_starts_lowest,
    "exponent-with-lanes": test_slot_exponent.test_comes_with_lanes_and_with_each_answer,
    "duplicate-before-completion": test_slot_retransmission.test_before_completion_it_is_dropped,
    "duplicate-after-completion": test_slot_retransmission.test_what_it_carries_is_not_read,
    "stale": test_slot_retransmission.test_of_a_slot_used_again_it_is_stale,
    "previous-version-answered": test_slot_retransmission.test_previous_set_is_still_answered,
    "late-before-reuse": test_slot_retransmission.test_late_packet_before_its_slot_is_used_again,
    "probe": test_slot_probe.test_says_who_contributed,
    "probe-other-chunks": test_slot_probe.test_says_which_chunk_the_slot_holds,
    "probe-older-epoch": test_slot_probe.test_knows_nothing_of_an_older_epoch,
    "probe-echo": test_slot_probe.test_echoes_what_was_asked,
    "mismatch": partial(
        test_slot_mismatch.test_all_workers_get_the_mismatch_and_nothing_is_added,
        other={"fingerprint": 0x1235},
        with_lanes=False,
    ),
    "mismatch-of-operation": partial(
        test_slot_mismatch.test_all_workers_get_the_mismatch_and_nothing_is_added,
        other={"fingerprint": 0x1234, "op": MAX},
        with_lanes=True,
    ),
    "mismatch-probe": test_slot_mismatch.test_probe_of_another_collective_is_answered_and_changes_nothing,
    "mismatch-full-slot": test_slot_mismatch.test_full_slot_does_not_answer_another_collective,
    "mismatch-next-chunk": test_slot_mismatch.test_next_chunk_of_a_disputed_slot_is_new,
    "no-lanes": partial(test_slot_header_only.test_first_and_middle, headers={0, 1}),
    "no-lanes-grows": partial(test_slot_header_only.test_last, headers={2}),
    "header-only-result": partial(
        test_header_only.test_copies_for_each_set_of_workers, header_only=0b010, op=SUM
    ),
    "quorum": partial(test_quorum.test_headers_of_each_operation, op=SUM),
    "token": partial(
        test_worker_admission.test_unadmitted_worker_changes_nothing, change={"token": 0x12345678}
    ),
    "slot-out-of-range": partial(test_worker_admission.test_slot_out_of_range, beyond=0),
}
"""Test of each vector, by the vector's name."""


class RecordingTarget:
    """A target that keeps what enters and leaves another, and whom it admits.

    Parameters
    ----------
    target
        The other.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def send(self, packets: Sequence[Packet]) -> list[Packet]:
        out = self.target.send(packets)
        self.events.append({"in": frames(packets), "out": frames(out)})
        return out

    def set_up(self, group: int, replicas: Sequence[tuple[int, int]], entries: list[Entry]) -> None:
        self.target.set_up(group, replicas, entries)
        self.events.append({"admit": admission_of(entries)})

    def tear_down(self, group: int, entries: list[Entry]) -> None:
        self.target.tear_down(group, entries)
        admitted = admission_of(entries)
        self.events.append({"withdraw": {key: admitted[key] for key in ("job_id", "token")}})


def frames(packets: Sequence[Packet]) -> list[list[Any]]:
    """Return packets as JSON has them; the order between ports does not count."""
    return [[port, frame.hex()] for port, frame in sorted(packets, key=lambda packet: packet[0])]


def admission_of(entries: Sequence[Entry]) -> Event:
    """Return a job's entries as JSON has them."""
    admitted = [each for each in entries if each.table == "worker_admission"]
    addressed = [each for each in entries if each.table == "copy_rewrite"]
    quorums = [each.params["workers"] for each in entries if each.table == "job_quorum"]
    first = admitted[0]
    assert isinstance(first.params, dict)
    return {
        **{key: first.key[key] for key in ("job_id", "token")},
        **{name: first.params[name] for name in ("num_workers", "pool_base", "pool_indices")},
        **({"quorum": quorums[0]} if quorums else {}),
        "workers": [
            {
                "worker_id": place.key["worker_id"],
                "port": place.key["ingress_port"],
                "ipv4": place.key["ipv4_src"],
                "mac": address.params["dst_mac"],
                "udp_port": address.params["dst_port"],
            }
            for place, address in zip(admitted, addressed, strict=True)
        ],
    }


class PlayedJob(Job):
    """A job with the admission of a vector.

    Parameters
    ----------
    target
        The switch.
    epoch
        A number that the switch has not had.
    admission
        As JSON has it.
    """

    def __init__(self, target: Target, epoch: int, admission: Event) -> None:
        self.admission = admission
        super().__init__(
            target,
            epoch=epoch,
            workers=admission["num_workers"],
            slot_base=admission["pool_base"] // 2,
            slot_count=admission["pool_indices"] // 2,
            **{key: admission[key] for key in ("job_id", "token")},
        )

    def entries(self) -> list[Entry]:
        """List the entries; those of the files must be those of this suite's jobs."""
        entries = super().entries()
        if quorum := self.admission.get("quorum"):
            entries.append(Entry("job_quorum", {"job_id": self.job_id}, "set_quorum", {"workers": quorum}))
        assert admission_of(entries) == self.admission
        return entries


def record(name: str, target: Target, epochs: Iterator[int]) -> list[Event]:
    """Run the test of a vector on a target with numbers for its epochs; return what happened."""
    jobs: list[Job] = []
    recording = RecordingTarget(target)
    tokens = itertools.count(FIRST_TOKEN)

    def make(workers: int = 2, slots: int = SLOTS_OF_A_VECTOR, kind: Any = Job, **fields: int) -> Job:
        taken = max((job.slot_base + job.slot_count for job in jobs), default=0)
        given = {"job_id": len(jobs) + 1, "token": next(tokens), "slot_base": taken} | fields
        job: Job = kind(recording, workers=workers, slot_count=slots, epoch=next(epochs), **given)
        job.start()
        jobs.append(job)
        return job

    def make_quorum(quorum: int, **given: Any) -> Job:
        return make(kind=partial(test_quorum.QuorumJob, quorum=quorum), **given)

    if name == "quorum":
        RECORDED[name](make_quorum=make_quorum)
    else:
        RECORDED[name](target=recording, make_job=make)
    for job in jobs:
        job.end()
    return recording.events


def text_of(name: str, events: list[Event]) -> str:
    """Return a vector as JSON, an event or a frame a line."""
    test = RECORDED[name]
    behaviour = getattr(test, "func", test).__name__.removeprefix("test_").replace("_", " ")
    head = {
        "name": name,
        "behaviour": behaviour,
        "lanes": LANES,
        "switch": {"ipv4": SWITCH_IP, "mac": SWITCH_MAC},
    }
    lines = [json.dumps(head)[:-1] + ', "events": [']
    for at, event in enumerate(events):
        end = "," if at < len(events) - 1 else ""
        if "in" in event:
            sides = (
                f'"{side}": [\n' + ",\n".join(map(json.dumps, event[side])) + "]" for side in ("in", "out")
            )
            lines.append("{" + ", ".join(sides) + "}" + end)
        else:
            lines.append(json.dumps(event) + end)
    return "\n".join([*lines, "]}"]) + "\n"


def pcap_of(events: list[Event]) -> bytes:
    """Return the frames of a vector as a capture, a second an event and a microsecond a frame."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, ETHERNET_LINK)]
    for second, event in enumerate(events):
        for microsecond, (_, text) in enumerate([*event.get("in", ()), *event.get("out", ())]):
            frame = bytes.fromhex(text)
            parts += [struct.pack("<IIII", second, microsecond, len(frame), len(frame)), frame]
    return b"".join(parts)


def files(target: Target, epochs: Iterator[int]) -> dict[str, bytes]:
    """Return the files of all vectors by their names."""
    found: dict[str, bytes] = {}
    for name in RECORDED:
        events = record(name, target, epochs)
        found |= {f"{name}.json": text_of(name, events).encode(), f"{name}.pcap": pcap_of(events)}
    return found


def main() -> None:
    """Write the files anew."""
    target = EmbeddedTarget(LANES)
    target.insert([Entry("switch_address", {"address": SWITCH_IP}, "own_address", {"mac": SWITCH_MAC})])
    FOLDER.mkdir(exist_ok=True)
    written = files(target, itertools.count(1))
    for path in set(FOLDER.iterdir()) - {FOLDER / name for name in written}:
        path.unlink()
    for name, content in written.items():
        (FOLDER / name).write_bytes(content)
    target.close()


if __name__ == "__main__":
    main()
