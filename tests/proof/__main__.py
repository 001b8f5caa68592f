"""Check every lemma and print it with the solver's answer and its time: ``python -m tests.proof``."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.proof import (
    catalogue,
    chunks,
    drawn_faults,
    program_copies,
    program_faults,
    program_lemmas,
    quorum_chunks,
    tree_lemmas,
    worker,
    worker_faults,
)
from tests.proof.faults import FAULTS, FaultRun, first_that_fails, lemmas_that_fail, shortest_run
from tests.proof.induction import Verdict, ask, possible, prove
from tests.proof.invariant import GUARANTEES
from tests.proof.one_switch_actions import ACTIONS
from tests.proof.program_lemmas import Ingress, Lemma, cases, load, of_lane, programs


def _protocol(seed: int) -> Iterator[Verdict]:
    for guarantee in GUARANTEES.values():
        yield from prove(guarantee, seed=seed)
    for action in ACTIONS:
        yield possible(action, seed)


def _faults(seed: int) -> Iterator[Verdict]:
    for fault in FAULTS:
        yield lemmas_that_fail(fault, seed)
        run = shortest_run(fault)
        _print(f"{fault.name}: {fault.guarantee}", run)


def _print(words: str, run: FaultRun) -> None:
    print(f"{words} fails", *run.steps, sep="\n    ", file=sys.stderr)


def _other_faults(seed: int) -> Iterator[Verdict]:
    for name, model in (("quorum chunks", quorum_chunks), ("trees", tree_lemmas)):
        for rule in model.FAULTS:
            yield first_that_fails(f"{name} without {rule}", model.lemmas(seed, model.FEW, **{rule: False}))
            _print(f"{name} without {rule}: a guarantee", model.run_without(rule))


def _asked(program: str, lemmas: Iterator[Lemma], seed: int) -> Iterator[Verdict]:
    for name, terms in lemmas:
        yield ask(f"{program}: {name}", terms, seed=seed, logic="QF_UFBV")


def _program(seed: int) -> Iterator[Verdict]:
    for name in programs():
        program = load(name)
        ingress = Ingress.of(program)
        for verdict in cases(ingress, seed):
            yield replace(verdict, lemma=f"{name}: {verdict.lemma}")
        yield from _asked(name, program_lemmas.lemmas(ingress), seed)
        yield from _asked(name, program_copies.lemmas(program), seed)


def _lanes(seed: int) -> Iterator[Verdict]:
    """Ask whether each lane is combined as the first is: by the same formula, or else by the solver."""
    for name in programs():
        begun = time.process_time()
        ingress = Ingress.of(load(name))
        unlike = program_lemmas.lanes_unlike_the_first(ingress)
        lanes = ingress.lane_bytes // 4
        words = f"{name}: {lanes - len(unlike)} of {lanes} lanes have the same formula"
        yield Verdict(words, "yes", "yes", time.process_time() - begun)
        for lane in unlike:
            yield from _asked(name, of_lane(ingress, lane), seed)


def _worker_faults(seed: int) -> Iterator[Verdict]:
    for name, sources in worker_faults.faults():
        yield worker_faults.verdict(name, sources, seed)


def _branches(seed: int) -> Iterator[Verdict]:
    program = load("netsum_v1model_64")
    for name, faulty in program_faults.branches(program):
        yield program_faults.verdict(name, faulty, program, seed)


PARTS: dict[str, Callable[[int], Iterator[Verdict]]] = {
    "protocol": _protocol, "faults": _faults, "quorum-chunks": quorum_chunks.lemmas,
    "trees": tree_lemmas.lemmas,
    "chunks": chunks.lemmas, "worker": worker.lemmas, "program": _program,
    "lanes": _lanes,
    "branches": _branches, "worker-faults": _worker_faults, "catalogue": catalogue.lemmas,
    "other-faults": _other_faults, "catalogue-runs": catalogue.runs, "reviewed": drawn_faults.reviewed,
    "drawn": drawn_faults.drawn, "drawn-runs": drawn_faults.runs,
}  # fmt: skip
LONG = (
    "branches", "worker-faults", "catalogue", "other-faults", "catalogue-runs", "reviewed", "drawn",
    "drawn-runs",
)  # fmt: skip


def main() -> int:
    """Check the lemmas of some parts, or of all; return 1 if one is not shown."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    words = f"of {', '.join(PARTS)}; default: all but the long ones, {', '.join(LONG)}"
    parser.add_argument("parts", nargs="*", metavar="PART", help=words)
    parser.add_argument("--json", action="store_true", help="a JSON object for each lemma")
    parser.add_argument("--seed", type=int, default=0, help="of the solver")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    count, missing, seconds = 0, 0, 0.0
    for part in options.parts or [name for name in PARTS if name not in LONG]:
        for verdict in PARTS[part](options.seed):
            count, missing, seconds = count + 1, missing + (not verdict.holds), seconds + verdict.seconds
            if verdict.example and not options.json:
                print(verdict.lemma, *verdict.example, sep="\n    ", file=sys.stderr)
            if options.json:
                print(json.dumps({"part": part, "holds": verdict.holds, **verdict.__dict__}), flush=True)
            else:
                word = "shown" if verdict.holds else "NOT SHOWN"
                print(f"{word:9} {verdict.answer:7} {verdict.seconds:6.2f} s  {verdict.lemma}", flush=True)
    if not options.json:
        print(f"{count - missing} of {count} lemmas shown, {seconds:.1f} s in the solver")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
