"""The step of a compiled program against docs/protocol.md: a lemma for each output, ingress and egress.

Hypotheses on the packet are what the parser leaves of one for the switch's netsum port; those on a slot and on entries are
invariants of the program and of the controller. How much a packet may grow, and every entry of every table, stay open.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import z3

from sim.switch import ir
from sim.switch.loader import load_program
from tests.proof.induction import Verdict, ask
from tests.proof.program_expected import (
    CONTRIBUTE,
    HEADER_ONLY_FIELD,
    LANES,
    MARK_FINAL,
    MARK_LANES,
    PROBE,
    QUORUM,
    RESULT,
    STATUS,
    UDP_PORT,
    Expected,
    Packet,
    has_flag,
    number_of_bits,
)
from tests.proof.program_step import Fields, Step, Term, run, start_of

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
        own = next(
            a.id
            for a in self.program.actions.values()
            if a.name == "NetsumIngress.switch_address.own_address"
        )
        allowed = z3.Or(
            z3.And(
                kind == CONTRIBUTE, z3.Or(*(flags == f for f in (0, LANES, QUORUM, QUORUM | LANES, 8, 9)))
            ),
            z3.And(kind == PROBE, z3.Or(flags == 0, flags == QUORUM)),
            z3.And(kind == RESULT, z3.Or(flags == 0, flags == LANES)),
            z3.And(kind == STATUS, flags & LANES == 0),
        )
        op = s["netsum", "op"]
        return [
            valid["ethernet"], valid["udp"], valid["netsum"],
            *(z3.Not(valid[h]) for h in ("packet_out", "arp", "icmp")),
            valid["lanes"] == (flags & LANES != 0),
            valid["status"] == (kind == STATUS),
            s["ipv4", "protocol"] == 17, s["udp", "dst_port"] == UDP_PORT,
            self.step.chosen["NetsumIngress.switch_address.switch_address"] == own,
            allowed, z3.Or(op == 1, op == 2, op == 3),
            s["netsum", "job_id"] != 0, z3.ULE(s["netsum", "job_id"], 255),
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
            z3.ULE(marks, MARK_LANES | MARK_FINAL),
            z3.Implies(z3.And(has_flag(marks, MARK_FINAL), p.slot("epoch") == entry["epoch"]), p.slot("seen") == mask),
            # An entry's bit is one of its mask, and a quorum is of at most 32 workers.
            z3.Or(bit == 0, z3.And(bit & (bit - 1) == 0, bit & mask == bit)), mask != 0,
            z3.ULE(p.given("job_quorum.set_quorum")["workers"], 32),
        ]  # fmt: skip


def _hypotheses(ingress: Ingress) -> list[Term]:
    return [*ingress.for_the_port(), ingress.well_formed(), *ingress.slot_invariants()]


def of_lane(ingress: Ingress, lane: int, seed: int = 0) -> Iterator[Verdict]:
    """Ask for the lemmas of one lane, in the slot and in the packet."""
    good, end = _hypotheses(ingress), ingress.step.end
    x = Expected(Packet(ingress.step, lane), ingress.lane_bytes)
    stored = end["register", f"NetsumIngress.slot.lanes.lane_{lane}"]
    yield ask(
        f"lane {lane} of the slot afterwards", [*good, stored != x.stored_lane], seed=seed, logic="QF_UFBV"
    )
    wrong = [*good, x.leaves, x.out_lanes, end["lanes", f"lane_{lane}"] != x.lane]
    yield ask(f"lane {lane} of the packet", wrong, seed=seed, logic="QF_UFBV")


def _lemmas(ingress: Ingress) -> Iterator[tuple[str, list[Term]]]:
    """Iterate over lemmas: a name, and terms that cannot hold together."""
    step = ingress.step
    s, end = step.start, step.end
    port, good = ingress.for_the_port(), _hypotheses(ingress)
    packet = Packet(step, 0)
    x = Expected(packet, ingress.lane_bytes)
    index = z3.ZeroExt(48, x.index)
    at_other = z3.Or(*(z3.And(condition, at != index) for condition, at in step.indices))
    for bitmap, value in step.counts:
        workers = z3.BitVec("workers", 32)
        yield "CountWorkers counts the workers of a bitmap", [
            z3.substitute(value, (bitmap, workers)) != number_of_bits(workers)
        ]  # fmt: skip
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
        ("exponent", x.exponent),
        ("worker_id", x.worker_id),
    ):
        yield f"its {name}", [*good, x.leaves, end["netsum", name] != expected]
    kept = ("version", "op", "job_id", "token", "pool_index", "chunk", "fingerprint")
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
        end["ipv4", "tos"] == 0, end["ipv4", "reserved"] == 0, end["ipv4", "dont_fragment"] == 1,
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
    changed = z3.Or(*(end[key] != s[key] for key in s if key[0] == "register" and "lane_" not in key[1]))
    lane = ("register", "NetsumIngress.slot.lanes.lane_0")
    changed = z3.Or(changed, end[lane] != s[lane])
    bad = [*port, z3.Not(ingress.well_formed())]
    malformed = end["count", "NetsumIngress.counters.malformed"] == 1
    yield "a malformed packet changes nothing, leaves nowhere and is counted", [
        *bad, z3.Or(changed, z3.Not(nowhere), z3.Not(malformed))
    ]  # fmt: skip
    valid = {h: s[h, "$valid$"] == 1 for h in ("packet_out", "ethernet", "arp", "icmp", "udp")}
    own_id = next(
        a.id for a in ingress.program.actions.values() if a.name == "NetsumIngress.switch_address.own_address"
    )
    is_own = step.chosen["NetsumIngress.switch_address.switch_address"] == own_id
    for_port = z3.And(
        valid["ethernet"], z3.Not(valid["packet_out"]), is_own, z3.Not(valid["arp"]), z3.Not(valid["icmp"]),
        s["ipv4", "protocol"] == 17, z3.Or(z3.Not(valid["udp"]), s["udp", "dst_port"] == UDP_PORT),
    )  # fmt: skip
    counts = z3.Or(*(end[key] == 1 for key in s if key[0] == "count"))
    yield "a packet that is not for the netsum port changes no slot and counts nowhere", [
        z3.Not(for_port), z3.Or(changed, counts)
    ]  # fmt: skip


def lemmas(ingress: Ingress, seed: int = 0) -> Iterator[Verdict]:
    """Ask for each lemma of a program's ingress; of the lanes, for those of the first."""
    for name, terms in _lemmas(ingress):
        yield ask(name, terms, seed=seed, logic="QF_UFBV")
    yield from of_lane(ingress, 0, seed)


def cases(ingress: Ingress, seed: int = 0) -> Iterator[Verdict]:
    """Ask whether each outcome is possible under the hypotheses: they contradict neither each other nor the program."""
    good = _hypotheses(ingress)
    x = Expected(Packet(ingress.step, 0), ingress.lane_bytes)
    for name, counted in x.counted.items():
        yield ask(f"{name} is possible", [*good, counted], "sat", seed, "QF_UFBV")


def swapped(program: ir.Program, branch: str) -> ir.Program:
    """Return a program in which the ways out of a branch of ingress are exchanged."""
    was = program.ingress.branches[branch]
    turned = replace(was, true_next=was.false_next, false_next=was.true_next)
    return replace(
        program, ingress=replace(program.ingress, branches={**program.ingress.branches, branch: turned})
    )


def copies(program: ir.Program, seed: int = 0, egress: ir.Pipeline | None = None) -> Iterator[Verdict]:
    """Ask for each lemma of egress: whom a copy of an answer goes to, and whether it has lanes."""
    step = run(program, egress or program.egress, start_of(program))
    s, end = step.start, step.end
    ingress = Ingress(program, step, 4 * len(program.headers["lanes"].type.fields))
    replica = s["standard_metadata", "egress_rid"]
    worker = z3.Extract(7, 0, replica) - 1
    answer, to_one = ingress.meta("is_answer", s) == 1, ingress.meta("send", s) == 3
    number = next(a.id for a in program.actions.values() if a.name == "NetsumEgress.copy_rewrite.rewrite")
    known = step.chosen["NetsumEgress.copy_rewrite.copy_rewrite"] == number
    for_other = z3.And(to_one, replica != z3.ZeroExt(8, s["netsum", "worker_id"]) + 1)
    to_sender = z3.And(to_one, s["standard_metadata", "egress_port"] == ingress.meta("ingress_port", s))
    dropped = z3.If(answer, z3.Or(for_other, z3.Not(known)), to_sender)
    drops = z3.And(
        end["standard_metadata", "egress_spec"] == 511, s["standard_metadata", "egress_spec"] != 511
    )
    stays = s["standard_metadata", "egress_spec"] != 511
    entry = step.given["NetsumEgress.copy_rewrite.rewrite"]
    addressed = z3.And(
        end["ethernet", "dst"] == entry["dst_mac"], end["ipv4", "dst"] == entry["dst_ip"],
        end["udp", "dst_port"] == entry["dst_port"],
        end["netsum", "worker_id"] == z3.If(replica == 0, s["netsum", "worker_id"], worker),
    )  # fmt: skip
    bit = z3.LShR(ingress.meta(HEADER_ONLY_FIELD, s), z3.ZeroExt(24, worker)) & 1
    cut = z3.And(replica != 0, s["lanes", "$valid$"] == 1, bit == 1)
    less = z3.If(cut, z3.BitVecVal(ingress.lane_bytes, 16), 0)
    flags = z3.If(cut, s["netsum", "flags"] & ~z3.BitVecVal(LANES, 4), s["netsum", "flags"])
    cuts = z3.And(
        (end["lanes", "$valid$"] == 1) == z3.And(s["lanes", "$valid$"] == 1, z3.Not(cut)),
        end["netsum", "flags"] == flags,
        end["udp", "bytes"] == s["udp", "bytes"] - less, end["ipv4", "total_bytes"] == s["ipv4", "total_bytes"] - less,
    )  # fmt: skip
    leaves = z3.And(answer, z3.Not(dropped))
    same = ("kind", "op", "job_id", "token", "pool_index", "chunk", "exponent", "fingerprint", "num_workers")
    kept = z3.And(
        *(end["netsum", n] == s["netsum", n] for n in same), end["lanes", "lane_0"] == s["lanes", "lane_0"]
    )
    is_cpu = z3.And(z3.Not(dropped), s["standard_metadata", "egress_port"] == 510)
    packet_in = z3.And(
        (end["packet_in", "$valid$"] == 1) == z3.Or(s["packet_in", "$valid$"] == 1, is_cpu),
        z3.Implies(
            is_cpu, end["packet_in", "ingress_port"] == z3.ZeroExt(7, ingress.meta("ingress_port", s))
        ),
    )
    for name, terms in (
        (
            "a copy that is not the receiver's, or of a worker that is not known, is dropped",
            [stays, drops != dropped],
        ),
        ("a copy has its worker's addresses and number", [leaves, z3.Not(addressed)]),
        ("a copy is the header alone for a worker that asked for it", [leaves, z3.Not(cuts)]),
        ("the rest of a copy is that of the answer", [z3.Not(kept)]),
        ("a frame to the controller names its port", [z3.Not(packet_in)]),
    ):
        yield ask(f"egress: {name}", terms, seed=seed, logic="QF_UFBV")


NOT_OF_THE_PROTOCOL = ("arp", "echo", "checksum", "forward")
"""Controls of which no lemma says what they do, only that they change no slot and count nothing."""


def _is_of_protocol(program: ir.Program, branch: ir.If) -> bool:
    """Whether a branch decides about packets for the netsum port: one of its ways leads to such a control otherwise."""
    names: list[str] = []
    for way, following in ((branch.true_next, "true_next"), (branch.false_next, "false_next")):
        name = way or ""
        while name in program.ingress.branches:
            name = getattr(program.ingress.branches[name], following) or ""
        names.append(name.split("tbl_")[-1].removeprefix("NetsumIngress."))
    return not any(name.startswith(NOT_OF_THE_PROTOCOL) for name in names)


def branch_faults(program: ir.Program, seed: int = 0) -> Iterator[Verdict]:
    """Exchange the ways out of each branch, one at a time: a lemma must fail, or the branch is not of the protocol."""
    for name, branch in program.ingress.branches.items():
        ingress = Ingress.of(swapped(program, name))
        failed = next((v for v in lemmas(ingress, seed) if not v.holds), None)
        seconds = failed.seconds if failed else 0.0
        if failed:
            yield Verdict(f"branch {name} exchanged: not so: {failed.lemma}", "noticed", "noticed", seconds)
        elif not _is_of_protocol(program, branch):
            yield Verdict(
                f"branch {name} exchanged: of ARP, echo or forwarding", "elsewhere", "elsewhere", seconds
            )
        else:
            yield Verdict(f"branch {name} exchanged: nothing fails", "missed", "noticed", seconds)
    for name, branch in program.egress.branches.items():
        turned = replace(branch, true_next=branch.false_next, false_next=branch.true_next)
        egress = replace(program.egress, branches={**program.egress.branches, name: turned})
        failed = next((v for v in copies(program, seed, egress) if not v.holds), None)
        answer = "noticed" if failed else "missed"
        yield Verdict(
            f"branch {name} of egress exchanged: not so: {failed and failed.lemma}", answer, "noticed", 0.0
        )
