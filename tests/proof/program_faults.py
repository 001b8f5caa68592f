"""Faults of a compiled program, such as a branch whose ways out are exchanged: a lemma must fail."""

import time
from collections.abc import Iterator
from dataclasses import replace

from sim.switch import ir
from tests.proof import program_copies, program_lemmas
from tests.proof.induction import Verdict, first_not_so
from tests.proof.program_lemmas import Ingress, Lemma


def _exchanged(pipeline: ir.Pipeline, branch: str) -> ir.Pipeline:
    was = pipeline.branches[branch]
    turned = replace(was, true_next=was.false_next, false_next=was.true_next)
    return replace(pipeline, branches={**pipeline.branches, branch: turned})


def branches(program: ir.Program) -> Iterator[tuple[str, ir.Program]]:
    """Iterate over programs with the ways out of one branch exchanged."""
    for name in program.ingress.branches:
        yield f"branch {name}", replace(program, ingress=_exchanged(program.ingress, name))
    for name in program.egress.branches:
        yield f"branch {name} of egress", replace(program, egress=_exchanged(program.egress, name))


def verdict(name: str, faulty: ir.Program, program: ir.Program, seed: int = 0) -> Verdict:
    """Ask for the lemmas that a fault may concern, until one does not hold."""
    begun = time.process_time()
    asked: list[Lemma] = []
    if faulty.egress != program.egress or faulty.actions != program.actions:
        asked += program_copies.lemmas(faulty)
    if faulty.ingress != program.ingress or faulty.actions != program.actions:
        asked += program_lemmas.lemmas(Ingress.of(faulty))
    failed = first_not_so(asked, seed, "QF_UFBV")
    words = f"not so: {failed.lemma}" if failed else "nothing fails"
    return Verdict(
        f"{name}: {words}", "noticed" if failed else "missed", "noticed", time.process_time() - begun
    )
