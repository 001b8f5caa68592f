"""The step of a compiled program's ingress against docs/protocol.md: a lemma for each output.

Hypotheses on the packet are what the parser leaves of one for the switch's netsum port; those on a slot and on entries are
invariants of the program and of the controller. How much a packet may grow, and every entry of every table, stay open.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import z3

from sim.switch import ir
from sim.switch.loader import load_program
from tests.proof import program_neighbours
from tests.proof.induction import Verdict, ask, model_of
from tests.proof.program_expected import (
    CONGESTED,
    CONTRIBUTE,
    ECT_0,
    HEADER_ONLY,
    HEADER_ONLY_FIELD,
    LANES,
    MARK_CONGESTED,
    MARK_FINAL,
    MARK_LANES,
    MISMATCH,
    PROBE,
    RESULT,
    STATUS,
    UDP_PORT,
    Expected,
    Packet,
    has_flag,
    number_of_bits,
)
from tests.proof.program_step import Fields, Step, Term, action_number, run, start_of

BUILD = Path(__file__).parents[2] / "p4/build"


def programs() -> list[str]:
    """Return the names of the compiled programs."""
    return sorted(path.stem for path in BUILD.glob("netsum_v1model_*.json"))


def load(name: str) -> ir.Program:
    """Return a compiled program."""
    return load_program(BUILD / f"{name}.json")


@dataclass(frozen=True)
class Ingress:
    """A compiled program's ingress, all branches, with what is assumed of the packet."""

    program: ir.Program
    step: Step
    lane_bytes: int

    @classmethod
    def of(cls, program: ir.Program) -> "Ingress":
        """Take a packet through a program."""
        lanes = len(program.headers["lanes"].type.fields)
        return cls(program, run(program, program.ingress, start_of(program)), 4 * lanes)

    def meta(self, name: str, fields: Fields) -> Term:
        """Return a field of the program's metadata, which p4c numbers."""
        found = [f for h, f in fields if h == "scalars" and re.fullmatch(rf".*\._(shared_)?{name}\d+", f)]
        assert len(found) == 1, (name, found)
        return fields["scalars", found[0]]

    def for_the_port(self) -> list[Term]:
        """Return what is assumed of a well-formed packet for the switch's netsum port; the parser has taken it apart."""
        s = self.step.start
        valid = {
            h: s[h, "$valid$"] == 1
            for h in ("packet_out", "ethernet", "arp", "icmp", "udp", "netsum", "lanes", "status")
        }
        kind, flags = s["netsum", "kind"], s["netsum", "flags"]
        own = action_number(self.program, "NetsumIngress.switch_address.own_address")
        of_quorum = s["netsum", "quorum"] == 1
        allowed = z3.Or(
            z3.And(
                kind == CONTRIBUTE, flags & ~(LANES | HEADER_ONLY | CONGESTED) == 0,
                z3.Or(z3.Not(of_quorum), flags & HEADER_ONLY == 0),
            ),
            z3.And(kind == PROBE, flags == 0),
            z3.And(kind == RESULT, z3.Not(of_quorum), flags & ~(LANES | CONGESTED) == 0),
            z3.And(kind == STATUS, flags & ~MISMATCH == 0),
        )  # fmt: skip
        op = s["netsum", "op"]
        return [
            valid["ethernet"], valid["udp"], valid["netsum"],
            *(z3.Not(valid[h]) for h in ("packet_out", "arp", "icmp")),
            valid["lanes"] == (flags & LANES != 0),
            valid["status"] == (kind == STATUS),
            s["ipv4", "protocol"] == 17, s["udp", "dst_port"] == UDP_PORT,
            self.step.chosen["NetsumIngress.switch_address.switch_address"] == own,
            allowed, z3.Or(op == 1, op == 2, op == 3),
            s["netsum", "job_id"] != 0, z3.ULE(s["netsum", "job_id"], 255),  # the last two: a job's number
        ]  # fmt: skip

    def well_formed(self) -> Term:
        """Return whether the packet is one in its lengths and checksum too."""
        s = self.step.start
        length = z3.ZeroExt(16, s["ipv4", "total_bytes"]) + 14
        return z3.And(
            self.meta("well_formed", s) == 1, s["standard_metadata", "checksum_error"] == 0,
            s["standard_metadata", "packet_length"] == length,
        )  # fmt: skip

    def slot_invariants(self) -> list[Term]:
        """Return what always holds of a slot that any packet can find, and of the controller's entries."""
        p = Packet(self.step, 0)
        entry = p.given("admission.admit")
        marks = p.slot("marks")
        bit, mask = entry["worker_bit"], entry["full_mask"]
        return [
            z3.ULE(marks, MARK_LANES | MARK_FINAL | MARK_CONGESTED),
            z3.Implies(z3.And(has_flag(marks, MARK_FINAL), p.slot("epoch") == entry["epoch"]), p.slot("seen") == mask),
            # An entry's bit is one of its mask, and a quorum is of at most 32 workers.
            z3.Or(bit == 0, z3.And(bit & (bit - 1) == 0, bit & mask == bit)), mask != 0,
            z3.ULE(p.given("job_quorum.set_quorum")["workers"], 32),
        ]  # fmt: skip


Lemma = tuple[str, list[Term]]
"""A name, and terms that cannot hold together."""


def _hypotheses(ingress: Ingress) -> list[Term]:
    return [*ingress.for_the_port(), ingress.well_formed(), *ingress.slot_invariants()]


def of_lane(ingress: Ingress, lane: int) -> Iterator[Lemma]:
    """Iterate over the lemmas of one lane, in the slot and in the packet."""
    good, end = _hypotheses(ingress), ingress.step.end
    x = Expected(Packet(ingress.step, lane), ingress.lane_bytes)
    stored = end["register", f"NetsumIngress.slot.lanes.lane_{lane}"]
    yield f"lane {lane} of the slot afterwards", [*good, stored != x.stored_lane]
    yield f"lane {lane} of the packet", [*good, x.leaves, x.out_lanes, end["lanes", f"lane_{lane}"] != x.lane]


def lanes_unlike_the_first(ingress: Ingress) -> list[int]:
    """Return the lanes whose formulas differ from the first one's in more than the names of the values in them."""
    start, end = ingress.step.start, ingress.step.end
    own, stored = z3.BitVecs("own stored", 32)

    def formulas(lane: int) -> list[Term]:
        places = ("lanes", f"lane_{lane}"), ("register", f"NetsumIngress.slot.lanes.lane_{lane}")
        names = [*zip((start[place] for place in places), (own, stored), strict=True)]
        return [z3.substitute(end[place], *names) for place in places]

    first = formulas(0)
    lanes = range(1, ingress.lane_bytes // 4)
    return [n for n in lanes if not all(a.eq(b) for a, b in zip(formulas(n), first, strict=True))]


def lemmas(ingress: Ingress) -> Iterator[Lemma]:
    """Iterate over the lemmas of a program's ingress; of the lanes, those of the first."""
    yield from of_lane(ingress, 0)
    step = ingress.step
    s, end = step.start, step.end
    port, good = ingress.for_the_port(), _hypotheses(ingress)
    packet = Packet(step, 0)
    x = Expected(packet, ingress.lane_bytes)
    index = z3.ZeroExt(48, x.index)
    at_other = z3.Or(*(z3.And(condition, at != index) for condition, at in step.indices))
    yield "every access to a register is at the admission's index", [*good, at_other]
    yield "no register is accessed unless the packet is admitted and in range", [
        *good, z3.Not(x.reaches_slot), z3.Or(*(condition for condition, _ in step.indices)),
    ]  # fmt: skip
    for name, value in x.registers.items():
        yield f"slot_{name} afterwards", [*good, end["register", f"NetsumIngress.slot.slot_{name}"] != value]
    standard = {n: end["standard_metadata", n] for n in ("mcast_grp", "egress_spec")}
    goes = z3.Or(x.to_group, x.to_one)
    nowhere = z3.And(standard["mcast_grp"] == 0, standard["egress_spec"] == 511)
    yield "what is not answered and does not go up leaves nowhere", [*good, z3.Not(x.leaves), z3.Not(nowhere)]
    yield "the group it leaves to", [*good, goes, standard["mcast_grp"] != x.group]
    start_group = s["standard_metadata", "mcast_grp"]
    yield "the port it leaves by", [
        *good, start_group == 0, x.to_port,
        z3.Not(z3.And(standard["egress_spec"] == x.port, standard["mcast_grp"] == 0)),
    ]  # fmt: skip
    yield "answers are marked as such for egress", [*good, (ingress.meta("is_answer", end) == 1) != x.answers]
    shared = x.header_only
    yield "egress knows whose copies are the header alone", [
        *good, x.to_group, x.out_lanes, ingress.meta(HEADER_ONLY_FIELD, end) != shared,
    ]  # fmt: skip
    yield "an answer to one of the group is marked", [*good, (ingress.meta("send", end) == 3) != x.to_one]
    for name, expected in (
        ("kind", x.kind),
        ("flags", x.flags),
        ("level", x.level),
        ("exponent", x.exponent),
        ("worker_id", x.worker_id),
    ):
        yield f"its {name}", [*good, x.leaves, end["netsum", name] != expected]
    kept = ("version", "job_id", "token", "pool_index", "chunk", "completer", "quorum", "op", "fingerprint")
    yield "the rest of its header", [*good, z3.Or(*(end["netsum", n] != s["netsum", n] for n in kept))]
    workers = z3.If(x.upward, z3.BitVecVal(0, 8), packet.given("admission.admit")["num_workers"])
    yield "its num_workers", [*good, x.leaves, end["netsum", "num_workers"] != workers]
    yield "whether lanes follow", [*good, x.leaves, (end["lanes", "$valid$"] == 1) != x.out_lanes]
    yield "whether `seen` follows", [*good, x.leaves, (end["status", "$valid$"] == 1) != x.has_seen]
    yield "its `seen`", [*good, x.leaves, x.has_seen, end["status", "seen"] != x.seen]
    yield "its `slot_chunk`", [*good, x.leaves, x.has_seen, end["status", "slot_chunk"] != x.slot_chunk]
    lengths = z3.And(end["udp", "bytes"] == x.udp_bytes, end["ipv4", "total_bytes"] == x.udp_bytes + 20)
    yield "its lengths", [*good, x.leaves, z3.Not(lengths)]
    yield "its identification", [*good, x.leaves, end["ipv4", "identification"] != x.identification]
    up = packet.given("slot.job_parent.pass_up")
    own = step.given["NetsumIngress.switch_address.own_address"]["mac"]
    addresses = z3.And(
        end["ipv4", "src"] == s["ipv4", "dst"], end["udp", "src_port"] == UDP_PORT, end["udp", "checksum"] == 0,
        end["ethernet", "src"] == own, ingress.meta("ipv4_is_new", end) == 1, end["ipv4", "ttl"] == 64,
        end["ipv4", "tos"] == s["ipv4", "tos"] & ECT_0, end["ipv4", "reserved"] == 0, end["ipv4", "dont_fragment"] == 1,
        z3.Implies(
            x.upward,
            z3.And(
                end["ipv4", "dst"] == up["dst_ip"], end["ethernet", "dst"] == up["dst_mac"], end["udp", "dst_port"] == UDP_PORT
            ),
        ),
    )  # fmt: skip
    yield "its addresses", [*good, x.leaves, z3.Not(addresses)]
    for name, counted in x.counted.items():
        counts = end["count", f"NetsumIngress.{name}"] == 1
        for_job = end["job", f"NetsumIngress.{name}"] == z3.ZeroExt(16, packet.job_id)
        right = z3.And(counts == counted, z3.Implies(counts, for_job))
        yield f"{name} counts, for its job", [*good, z3.Not(right)]
    has_job = z3.And(s["netsum", "$valid$"] == 1, z3.ULE(packet.job_id, 255))
    job = z3.If(has_job, z3.ZeroExt(16, packet.job_id), 0)
    counters = [f"NetsumIngress.{name}" for name in x.counted]
    elsewhere = z3.Or(*(z3.And(end["count", n] == 1, end["job", n] != job) for n in counters))
    of_any_job = port[:-2]
    admitted = packet.chosen("admission.worker_admission", "admission.admit")
    refused = z3.Or(z3.Not(ingress.well_formed()), z3.Not(admitted))
    yield "what is refused counts for its job, or for 0 if there may be no such job", [
        *of_any_job, refused, elsewhere,
    ]  # fmt: skip
    changed = z3.Or(*(end[key] != s[key] for key in s if key[0] == "register" and "lane_" not in key[1]))
    lane = ("register", "NetsumIngress.slot.lanes.lane_0")
    changed = z3.Or(changed, end[lane] != s[lane])
    bad = [*port, z3.Not(ingress.well_formed())]
    malformed = end["count", "NetsumIngress.counters.malformed"] == 1
    yield "a malformed packet changes nothing, leaves nowhere and is counted", [
        *bad, z3.Or(changed, z3.Not(nowhere), z3.Not(malformed))
    ]  # fmt: skip
    valid = {h: s[h, "$valid$"] == 1 for h in ("packet_out", "ethernet", "arp", "icmp", "udp")}
    own_address = action_number(ingress.program, "NetsumIngress.switch_address.own_address")
    is_own = step.chosen["NetsumIngress.switch_address.switch_address"] == own_address
    for_port = z3.And(
        valid["ethernet"], z3.Not(valid["packet_out"]), is_own, z3.Not(valid["arp"]), z3.Not(valid["icmp"]),
        s["ipv4", "protocol"] == 17, z3.Or(z3.Not(valid["udp"]), s["udp", "dst_port"] == UDP_PORT),
    )  # fmt: skip
    counts = z3.Or(*(end[key] == 1 for key in s if key[0] == "count"))
    yield "a packet that is not for the netsum port changes no slot and counts nowhere", [
        z3.Not(for_port), z3.Or(changed, counts)
    ]  # fmt: skip
    other = [
        is_own,
        valid["ethernet"],
        *(z3.Not(valid[h]) for h in ("packet_out", "arp", "icmp")),
        z3.Not(for_port),
    ]
    yield "a packet for the switch that is for no port of its own ends here", [*other, z3.Not(nowhere)]
    before, after = ({n: ingress.meta(n, f) for n in ("is_request", "send", "ipv4_is_new")} for f in (s, end))
    yield from program_neighbours.lemmas(step, before, after)
    for bitmap, value in step.counts:
        workers = z3.BitVec("workers", 32)
        yield "CountWorkers counts the workers of a bitmap", [
            z3.substitute(value, (bitmap, workers)) != number_of_bits(workers)
        ]  # fmt: skip


def cases(ingress: Ingress, seed: int = 0) -> Iterator[Verdict]:
    """Ask whether each outcome is possible under the hypotheses: they contradict neither each other nor the program."""
    good = _hypotheses(ingress)
    x = Expected(Packet(ingress.step, 0), ingress.lane_bytes)
    for name, counted in x.counted.items():
        yield ask(f"{name} is possible", [*good, counted], "sat", seed, "QF_UFBV")


@cache
def packets() -> list[Any]:
    """Return a packet, with a slot and entries, for each outcome of the shipped program."""
    ingress = Ingress.of(load("netsum_v1model_64"))
    x = Expected(Packet(ingress.step, 0), ingress.lane_bytes)
    return [model_of([*_hypotheses(ingress), counted], "QF_UFBV") for counted in x.counted.values()]
