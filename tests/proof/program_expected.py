"""Registers, answers and counters after a packet as docs/protocol.md says, as formulas over packet, slot and entries."""

from dataclasses import dataclass

import z3

from tests.proof.program_step import COUNT, Step, Term, action_number

CONTRIBUTE, RESULT, PROBE, STATUS = 1, 2, 3, 4
LANES, MISMATCH, HEADER_ONLY, CONGESTED = 1, 2, 4, 8
HEADER_ONLY_FIELD = "header_only"
"""The compiled program's name for the workers that need header-only RESULTs, as metadata and in a register."""
MARK_LANES, MARK_FINAL, MARK_CONGESTED = 1, 2, 4
ECT_0, CE = 2, 3
DISPUTED = 0xFFFFFFFF
UDP_PORT, INDICES = 28275, 8192


def has_flag(value: Term, number: int) -> Term:
    """Return whether a bit is set."""
    return (value & number) != 0


def number_of_bits(workers: Term) -> Term:
    """Return how many bits a bitmap has: a sum of halves, as the solver ends sooner with it than with one of 32 bits."""
    if workers.size() == 1:
        return z3.ZeroExt(7, workers)
    half = workers.size() // 2
    upper, lower = z3.Extract(workers.size() - 1, half, workers), z3.Extract(half - 1, 0, workers)
    return number_of_bits(upper) + number_of_bits(lower)


def _cases(*cases: tuple[Term, Term], otherwise: Term) -> Term:
    for condition, value in reversed(cases):
        otherwise = z3.If(condition, value, otherwise)
    return otherwise


def _saturated(value: Term) -> Term:
    """Return 32 bits of a sum of 33."""
    least, most = z3.BitVecVal(-(1 << 31), 33), z3.BitVecVal((1 << 31) - 1, 33)
    return z3.Extract(31, 0, z3.If(value < least, least, z3.If(value > most, most, value)))


@dataclass(frozen=True)
class Packet:
    """An arriving packet: the header's fields, the lanes behind it, and the tables' entries."""

    step: Step
    lane: int

    def __getattr__(self, name: str) -> Term:
        """Return a field of netsum's header."""
        return self.step.start["netsum", name]

    def slot(self, name: str) -> Term:
        """Return what a slot's register holds before."""
        return self.step.start["register", f"NetsumIngress.slot.slot_{name}"]

    @property
    def has_lanes(self) -> Term:
        """Whether lanes follow."""
        return self.step.start["lanes", "$valid$"] == 1

    def given(self, action: str) -> dict[str, Term]:
        """Return the parameters of an entry."""
        return self.step.given[f"NetsumIngress.{action}"]

    def chosen(self, table: str, action: str) -> Term:
        """Return whether a table's entry has an action."""
        number = action_number(self.step.program, f"NetsumIngress.{action}")
        return self.step.chosen[f"NetsumIngress.{table}"] == number


class Expected:
    """The outputs that docs/protocol.md requires for a packet to the netsum port, by name."""

    def __init__(self, p: Packet, lane_bytes: int) -> None:
        start = p.step.start
        entry = p.given("admission.admit")
        bit, mask = entry["worker_bit"], entry["full_mask"]
        from_parent = z3.Or(p.kind == RESULT, p.kind == STATUS)
        # Admit.
        entered = z3.And(p.chosen("admission.worker_admission", "admission.admit"), from_parent == (bit == 0))
        wide = z3.ZeroExt(1, entry["pool_base"]) + z3.ZeroExt(1, p.pool_index)
        self.index = z3.If(z3.UGT(wide, 0xFFFF), z3.BitVecVal(0xFFFF, 16), z3.Extract(15, 0, wide))
        in_range = z3.And(z3.ULT(p.pool_index, entry["pool_indices"]), z3.ULT(self.index, INDICES))
        asks_quorum = p.quorum == 1
        k = z3.If(
            p.chosen("job_quorum.job_quorum", "job_quorum.set_quorum"),
            p.given("job_quorum.set_quorum")["workers"],
            0,
        )
        k = z3.If(asks_quorum, k, 0)
        has_quorum = z3.Or(z3.Not(asks_quorum), k != 0)
        reaches_slot = z3.And(entered, in_range, p.kind != STATUS, has_quorum)
        # Compare tags.
        same_epoch = p.slot("epoch") == entry["epoch"]
        same = z3.And(same_epoch, p.chunk == p.slot("chunk"))
        newer = z3.Or(z3.Not(same_epoch), p.chunk - p.slot("chunk") > 0)
        stale = z3.Not(z3.Or(same, newer))
        asked = z3.Concat(p.quorum, p.op, p.fingerprint)
        contributes = z3.And(reaches_slot, p.kind == CONTRIBUTE, z3.Not(stale))
        probes = z3.And(reaches_slot, p.kind == PROBE)
        # The slot of the packet's tag.
        held = {
            name: z3.If(newer, 0, p.slot(name)) for name in ("seen", HEADER_ONLY_FIELD, "marks", "exponent")
        }
        held["collective"] = z3.If(newer, asked, p.slot("collective"))
        final = has_flag(held["marks"], MARK_FINAL)
        count = COUNT(held["seen"])
        agrees = held["collective"] == asked
        has_bit = (held["seen"] & bit) != 0
        filled = z3.And(k != 0, count == k)
        mismatch = z3.Or(
            z3.And(contributes, z3.Not(agrees)), z3.And(probes, same, p.slot("collective") != asked)
        )
        added = z3.And(contributes, agrees, z3.Not(filled), z3.Not(has_bit))
        late = z3.And(contributes, agrees, filled, z3.Not(has_bit))
        full_before = held["seen"] == mask
        full = z3.Or((held["seen"] | bit) == mask, z3.And(k != 0, count + 1 == k))
        repeated = z3.And(contributes, agrees, has_bit)
        answerable = z3.And(repeated, z3.Or(filled, full_before))
        # Trees.
        entry_up = p.chosen("slot.job_parent.job_parent", "slot.job_parent.pass_up")
        goes_on = z3.And(entry_up, z3.Not(final), k == 0)
        taken = z3.And(
            reaches_slot, p.kind == RESULT, same, p.slot("collective") == asked, p.slot("seen") == mask,
            z3.Not(has_flag(p.slot("marks"), MARK_FINAL)),
        )  # fmt: skip
        again_from_parent = z3.And(
            reaches_slot, p.kind == RESULT, same, p.slot("collective") == asked, p.slot("seen") == mask,
            has_flag(p.slot("marks"), MARK_FINAL),
        )  # fmt: skip
        completed = z3.And(added, full, z3.Not(goes_on))
        passes_sum = z3.And(added, full, goes_on)
        repeats_up = z3.And(answerable, full_before, goes_on, bit == 1)
        answered = z3.And(answerable, z3.Not(z3.And(full_before, goes_on)))
        dropped = z3.Or(
            z3.And(repeated, z3.Not(answerable)),
            z3.And(answerable, full_before, goes_on, bit != 1),
            again_from_parent,
        )
        probe_up = z3.And(probes, z3.Not(mismatch), same, p.slot("seen") == mask, goes_on)
        probe_status = z3.And(probes, z3.Not(mismatch), z3.Not(probe_up))
        passed_down = z3.And(entered, in_range, p.kind == STATUS)
        # Lanes.
        adds_lanes = z3.And(added, p.has_lanes)
        had_lanes = has_flag(held["marks"], MARK_LANES)
        own = start["lanes", f"lane_{p.lane}"]
        stored = start["register", f"NetsumIngress.slot.lanes.lane_{p.lane}"]
        combined = _cases(
            (z3.Not(had_lanes), own),
            (p.op == 1, _saturated(z3.SignExt(1, stored) + z3.SignExt(1, own))),
            (p.op == 2, z3.If(stored > own, stored, own)),
            otherwise=stored | own,
        )
        lane = _cases((adds_lanes, combined), (z3.And(taken, p.has_lanes), own), otherwise=stored)
        # A queue has marked the packet, or one that is in it.
        marked = z3.Or((start["ipv4", "tos"] & CE) == CE, has_flag(p.flags, CONGESTED))
        mark = z3.If(marked, z3.BitVecVal(MARK_CONGESTED, 8), 0)
        lanes_mark = z3.If(p.has_lanes, z3.BitVecVal(MARK_LANES, 8), 0)
        marks = _cases(
            (added, held["marks"] | lanes_mark | mark),
            (taken, lanes_mark | mark | MARK_FINAL),
            otherwise=held["marks"],
        )
        exponent = _cases(
            (z3.And(added, z3.UGT(p.exponent, held["exponent"])), p.exponent),
            (taken, p.exponent),
            otherwise=held["exponent"],
        )
        # A RESULT or sum leaves with the slot's lanes if there is room for them.
        is_result = z3.Or(completed, answered, late)
        leaves = z3.Or(is_result, passes_sum, repeats_up)
        answered_header_only = z3.And(has_flag(p.flags, HEADER_ONLY), answered)
        wants_lanes = z3.And(has_flag(marks, MARK_LANES), z3.Not(answered_header_only))
        grows = z3.UGE(p.given("slot.limit")["bytes"], lane_bytes)
        no_room = z3.And(leaves, wants_lanes, z3.Not(p.has_lanes), z3.Not(grows))
        status = z3.Or(mismatch, probe_status, no_room)
        result = z3.Or(z3.And(is_result, z3.Not(no_room)), taken)
        upward = z3.Or(z3.And(z3.Or(passes_sum, repeats_up), z3.Not(no_room)), probe_up)
        disputed_above = z3.And(passed_down, has_flag(p.flags, MISMATCH))
        to_group = z3.Or(completed, mismatch, taken, z3.And(no_room, passes_sum), disputed_above)
        to_one = z3.And(passed_down, z3.Not(has_flag(p.flags, MISMATCH)))
        answers = z3.Or(status, result, passed_down)
        to_port = z3.Or(z3.And(answers, z3.Not(to_group), z3.Not(to_one)), upward)
        out_lanes = z3.If(
            z3.Or(result, upward),
            z3.Or(
                z3.And(leaves, wants_lanes), z3.And(taken, p.has_lanes),
                z3.And(z3.Or(passes_sum, repeats_up, probe_up), p.has_lanes),
            ),
            False,
        )  # fmt: skip
        changed = z3.Or(added, taken, z3.And(contributes, z3.Not(agrees)))
        after = {
            "epoch": entry["epoch"],
            "chunk": p.chunk,
            "collective": z3.If(mismatch, DISPUTED, held["collective"]),
            "seen": z3.If(added, held["seen"] | bit, held["seen"]),
            HEADER_ONLY_FIELD: z3.If(
                z3.And(added, has_flag(p.flags, HEADER_ONLY)),
                held[HEADER_ONLY_FIELD] | bit,
                held[HEADER_ONLY_FIELD],
            ),
            "marks": marks,
            "exponent": exponent,
        }
        self.reaches_slot = reaches_slot
        self.registers = {name: z3.If(changed, value, p.slot(name)) for name, value in after.items()}
        self.stored_lane = lane
        self.header_only = after[HEADER_ONLY_FIELD]
        self.leaves = z3.Or(answers, upward)
        self.answers = answers
        self.to_group, self.to_one, self.to_port, self.upward = to_group, to_one, to_port, upward
        self.status, self.result = status, result
        self.out_lanes = out_lanes
        from_slot = z3.And(leaves, has_flag(marks, MARK_LANES))
        self.lane = _cases((z3.Or(taken, adds_lanes), lane), (from_slot, stored), otherwise=own)
        self.kind = _cases(
            (z3.Or(status, passed_down), z3.BitVecVal(STATUS, 4)),
            (result, z3.BitVecVal(RESULT, 4)),
            otherwise=p.kind,
        )
        above = z3.If(p.level == 15, p.level, p.level + 1)
        self.level = _cases((to_one, above), (answers, z3.BitVecVal(0, 4)), otherwise=p.level)
        of_slot = z3.If(has_flag(marks, MARK_CONGESTED), z3.BitVecVal(CONGESTED, 8), 0)
        with_lanes = z3.If(out_lanes, z3.BitVecVal(LANES, 8), 0)
        nobody_needs_lanes = z3.And(p.kind == CONTRIBUTE, after[HEADER_ONLY_FIELD] == mask)
        self.flags = _cases(
            (disputed_above, z3.BitVecVal(MISMATCH, 8)),
            (passed_down, z3.BitVecVal(0, 8)),
            (mismatch, z3.BitVecVal(MISMATCH, 8)),
            (status, z3.BitVecVal(0, 8)),
            (result, with_lanes | of_slot),
            (probe_up, with_lanes),
            otherwise=with_lanes | of_slot | z3.If(nobody_needs_lanes, z3.BitVecVal(HEADER_ONLY, 8), 0),
        )
        self.exponent = z3.If(leaves, exponent, p.exponent)
        names_seen = z3.And(result, k != 0, p.kind == CONTRIBUTE)
        self.has_seen = z3.Or(status, passed_down, names_seen)
        probed_new = z3.And(probes, z3.Not(same_epoch))
        self.seen = _cases(
            (passed_down, start["status", "seen"]),
            (probed_new, z3.BitVecVal(0, 32)),
            (probes, p.slot("seen")),
            otherwise=after["seen"],
        )
        self.slot_chunk = _cases(
            (passed_down, start["status", "slot_chunk"]),
            (z3.And(probes, same_epoch), p.slot("chunk")),
            otherwise=p.chunk,
        )
        header = z3.BitVecVal(32, 16)
        self.udp_bytes = (
            header
            + z3.If(out_lanes, z3.BitVecVal(lane_bytes, 16), 0)
            + z3.If(self.has_seen, z3.BitVecVal(8, 16), 0)
        )
        way = start["ipv4", "identification"]
        self.identification = _cases(
            (probe_status, way),
            (to_one, z3.LShR(way, 5)),
            (probe_up, (way << 5) | z3.ZeroExt(8, p.worker_id)),
            otherwise=z3.BitVecVal(0, 16),
        )
        up = p.given("slot.job_parent.pass_up")
        self.worker_id = _cases(
            (to_one, z3.Extract(7, 0, way & 31)), (upward, up["worker_id"]), otherwise=p.worker_id
        )
        self.group = entry["mcast_group"]
        self.port = z3.If(upward, up["port"], start["standard_metadata", "ingress_port"])
        not_admitted = z3.Or(z3.And(z3.Not(from_parent), z3.Not(entered)),
                             z3.And(entered, in_range, p.kind != STATUS, z3.Not(has_quorum)))  # fmt: skip
        self.counted = {
            "counters.contributions": added,
            "counters.results": completed,
            "counters.duplicates_answered": answered,
            "counters.duplicates_dropped": dropped,
            "counters.stale": z3.And(
                reaches_slot,
                z3.Or(
                    z3.And(p.kind == CONTRIBUTE, stale),
                    z3.And(p.kind == RESULT, z3.Not(taken), z3.Not(again_from_parent)),
                ),
            ),
            "counters.not_admitted": not_admitted,
            "counters.out_of_range": z3.And(entered, z3.Not(in_range)),
            "counters.mismatches": mismatch,
            "counters.malformed": z3.And(from_parent, z3.Not(entered)),
            "counters.probes": z3.And(probes, z3.Not(mismatch)),
            "tree_counters.passed_up": z3.And(passes_sum, z3.Not(no_room)),
            "tree_counters.duplicates_passed_up": repeats_up,
            "tree_counters.probes_passed_up": probe_up,
            "tree_counters.results_taken": taken,
            "tree_counters.statuses_passed_down": passed_down,
            "quorum_counters.late": late,
        }
