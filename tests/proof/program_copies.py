"""The step of a compiled program's egress against docs/protocol.md: the copies of an answer."""

from collections.abc import Iterator

import z3

from sim.switch import ir
from tests.proof.program_expected import HEADER_ONLY_FIELD, LANES
from tests.proof.program_lemmas import Ingress, Lemma
from tests.proof.program_step import action_number, run, start_of


def lemmas(program: ir.Program) -> Iterator[Lemma]:
    """Iterate over the lemmas of egress: whom a copy of an answer goes to, and whether it has lanes."""
    step = run(program, program.egress, start_of(program))
    s, end = step.start, step.end
    ingress = Ingress(program, step, 4 * len(program.headers["lanes"].type.fields))
    replica = s["standard_metadata", "egress_rid"]
    worker = z3.Extract(7, 0, replica) - 1
    answer, to_one = ingress.meta("is_answer", s) == 1, ingress.meta("send", s) == 3
    number = action_number(program, "NetsumEgress.copy_rewrite.rewrite")
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
    flags = z3.If(cut, s["netsum", "flags"] & ~z3.BitVecVal(LANES, 8), s["netsum", "flags"])
    cuts = z3.And(
        (end["lanes", "$valid$"] == 1) == z3.And(s["lanes", "$valid$"] == 1, z3.Not(cut)),
        end["netsum", "flags"] == flags,
        end["udp", "bytes"] == s["udp", "bytes"] - less, end["ipv4", "total_bytes"] == s["ipv4", "total_bytes"] - less,
    )  # fmt: skip
    leaves = z3.And(answer, z3.Not(dropped))
    same = (
        *("kind", "job_id", "token", "num_workers", "pool_index", "chunk", "exponent", "level"),
        *("completer", "quorum", "op", "fingerprint"),
    )
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
    yield (
        "egress: a copy that is not the receiver's, or of a worker that is not known, is dropped",
        [stays, drops != dropped],
    )
    yield "egress: a copy has its worker's addresses and number", [leaves, z3.Not(addressed)]
    yield "egress: a copy is the header alone for a worker that asked for it", [leaves, z3.Not(cuts)]
    yield "egress: the rest of a copy is that of the answer", [z3.Not(kept)]
    yield "egress: a frame to the controller names its port", [z3.Not(packet_in)]
