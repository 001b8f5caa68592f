"""Faults of a compiled program, such as a branch whose ways out are exchanged: a lemma must fail."""

import time
from collections.abc import Iterator
from dataclasses import replace

import z3

from sim.switch import ir
from tests.proof import program_copies, program_lemmas
from tests.proof.induction import Verdict, ask, first_not_so
from tests.proof.program_expected import HEADER_ONLY_FIELD
from tests.proof.program_lemmas import Ingress, Lemma
from tests.proof.program_step import run, start_of


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
    """Ask for the lemmas that a fault may concern, until one does not hold; or else whether it changes anything."""
    begun = time.process_time()
    asked: list[Lemma] = []
    changes_actions = faulty.actions != program.actions
    if faulty.egress != program.egress or changes_actions:
        asked += program_copies.lemmas(faulty)
    ingress = None
    if faulty.ingress != program.ingress or changes_actions:
        ingress = Ingress.of(faulty)
        asked += program_lemmas.lemmas(ingress)
    failed = first_not_so(asked, seed, "QF_UFBV", program_lemmas.packets())
    words, answer = (f"not so: {failed.lemma}", "noticed") if failed else ("nothing fails", "missed")
    if ingress and not failed and (unlike := program_lemmas.lanes_unlike_the_first(ingress)):
        words, answer = f"not so: lane {unlike[0]} is as the first", "noticed"
    if answer == "missed" and is_equivalent(faulty, program, seed):
        words, answer = "it changes nothing that leaves or stays", "equivalent"
    expected = "equivalent" if answer == "equivalent" else "noticed"
    example = failed.example if failed else ()
    return Verdict(f"{name}: {words}", answer, expected, time.process_time() - begun, example)


KEPT = ("is_answer", "send", "ipv4_is_new", "ingress_port", HEADER_ONLY_FIELD)
"""Metadata that egress and the deparser read."""


def is_equivalent(faulty: ir.Program, program: ir.Program, seed: int = 0) -> bool:
    """Return whether two programs do the same to every packet, slot and entry, so that no lemma can tell them apart."""
    begin = start_of(program)
    differs = []
    for pipeline in ("ingress", "egress"):
        steps = [run(each, getattr(each, pipeline), begin) for each in (program, faulty)]
        ends = [Ingress(program, step, 0) for step in steps]
        differs += [
            steps[0].end[key] != steps[1].end[key]
            for key in begin
            if key[0] != "scalars" and steps[0].end[key] is not steps[1].end[key]
        ]
        differs += [ends[0].meta(n, steps[0].end) != ends[1].meta(n, steps[1].end) for n in KEPT]
    return ask("differs", [z3.Or(*differs)], seed=seed, logic="QF_UFBV").holds
