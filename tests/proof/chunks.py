"""Chunk numbers of 32 bits: age, slot and pool version, for every number of slots that a job may have.

The model of one switch has rounds without end. These lemmas are why chunk numbers that wrap, and a comparison of 32 bits, are as
good, and that the bound of 2^31 on how late a packet comes is needed. The worker counts chunks in 64 bits.
"""

from collections.abc import Iterator

import z3

from tests.proof.induction import Verdict, ask

SLOTS = tuple(1 << n for n in range(11))


def slot_of(chunk: z3.BitVecRef, slots: int) -> z3.BitVecRef:
    """Return the slot of a chunk: `slot_of` of host_agent/protocol/records.py."""
    return chunk & (slots - 1)


def version_of(chunk: z3.BitVecRef, slots: int) -> z3.BoolRef:
    """Return the pool version of a chunk: `pool_index_of` of host_agent/protocol/records.py."""
    return (chunk & slots) != 0


def round_of(chunk: z3.BitVecRef, slots: int) -> z3.BitVecRef:
    """Return how many chunks of the slot came before."""
    return z3.UDiv(chunk, z3.BitVecVal(slots, chunk.size()))


def lemmas(seed: int = 0) -> Iterator[Verdict]:
    """Ask for each lemma."""
    c, d = z3.BitVecs("c d", 64)
    wire_c, wire_d = z3.Extract(31, 0, c), z3.Extract(31, 0, d)
    age = wire_c - wire_d
    apart = z3.And(z3.ULT(c, 1 << 62), z3.ULT(d, 1 << 62))
    near = z3.And(apart, c - d < (1 << 31), d - c <= (1 << 31))

    def shown(name: str, *terms: z3.BoolRef, expected: str = "unsat") -> Verdict:
        return ask(f"chunks: {name}", list(terms), expected, seed, "QF_UFBV")

    yield shown("age 0 is the same chunk", near, (age == 0) != (c == d))
    yield shown("age 1 to 2^31 - 1 is a newer chunk", near, z3.And(age != 0, age >= 0) != (c > d))
    yield shown("age 2^31 and more is an older chunk", near, (age < 0) != (c < d))
    yield shown("2^31 chunks later is taken for older", apart, c - d == 1 << 31, age < 0, expected="sat")
    yield shown(
        "more than 2^31 chunks earlier is taken for newer",
        apart,
        d - c == (1 << 31) + 1,
        age > 0,
        expected="sat",
    )
    yield shown("2^32 chunks later is taken for the same", apart, c - d == 1 << 32, age == 0, expected="sat")
    for slots in SLOTS:
        n = f"{slots} slots"
        size = z3.BitVecVal(slots, 64)
        wire_slot = z3.ZeroExt(32, slot_of(wire_c, slots))
        version = version_of(c, slots)
        yield shown(f"slot and version are those of the wire's number, {n}", apart,
                    z3.Or(wire_slot != slot_of(c, slots), version_of(wire_c, slots) != version))  # fmt: skip
        yield shown(f"the slot is the remainder, the version the quotient's parity, {n}", apart,
                    z3.Or(slot_of(c, slots) != z3.URem(c, size), version != (round_of(c, slots) & 1 == 1)))  # fmt: skip
        yield shown(f"c + S has the same slot and the other version, {n}", apart,
                    z3.Or(slot_of(c + slots, slots) != slot_of(c, slots), version_of(c + slots, slots) == version))  # fmt: skip
        shares = z3.And(slot_of(c, slots) == slot_of(d, slots), version == version_of(d, slots))
        yield shown(f"chunks that share slot and version are 2S apart, {n}", apart, z3.ULT(c, d), shares,
                    z3.Or(d - c < 2 * slots, z3.URem(d - c, 2 * size) != 0))  # fmt: skip
        alike = z3.And(apart, slot_of(c, slots) == slot_of(d, slots))
        yield shown(f"between rounds of one version lies another round, {n}", alike, shares, z3.ULT(c, d),
                    z3.Not(z3.And(z3.ULT(c, c + slots), z3.ULT(c + slots, d))))  # fmt: skip
        index = slot_of(wire_c, slots) * 2 + z3.If(
            version_of(wire_c, slots), z3.BitVecVal(1, 32), z3.BitVecVal(0, 32)
        )
        yield shown(f"the pool index is in the job's range, {n}", z3.Not(z3.ULT(index, 2 * slots)))
    three = z3.And(apart, z3.URem(wire_c, 3) != z3.Extract(31, 0, z3.URem(c, z3.BitVecVal(3, 64))))
    yield shown("with 3 slots, the slot jumps where chunk numbers wrap", three, c == 1 << 32, expected="sat")
