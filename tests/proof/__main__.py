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
    program_copies,
    program_faults,
    program_lemmas,
    quorum_chunks,
    tree_lemmas,
    worker,
    worker_faults,
)
from tests.proof.faults import FAULTS, FaultRun, lemmas_that_fail, shortest_run
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
            begun = time.process_time()
            failed = next((v.lemma for v in model.lemmas(seed, **{rule: False}) if not v.holds), None)
            answer, seconds = "noticed" if failed else "missed", time.process_time() - begun
            yield Verdict(f"{name} without {rule}: not so: {failed}", answer, "noticed", seconds)
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


def _all_lanes(seed: int) -> Iterator[Verdict]:
    for name in programs():
        ingress = Ingress.of(load(name))
        for lane in range(1, ingress.lane_bytes // 4):
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
    "lanes": _all_lanes, "branches": _branches, "worker-faults": _worker_faults, "catalogue": catalogue.lemmas,
    "other-faults": _other_faults, "catalogue-runs": catalogue.runs,
}  # fmt: skip
LONG = ("lanes", "branches", "worker-faults", "catalogue", "other-faults", "catalogue-runs")


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
