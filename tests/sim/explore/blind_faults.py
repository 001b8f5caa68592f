"""Faults that are drawn, not chosen: a seed draws changes of operators, constants, conditions and statements of the program and
of the worker core, and each net says whether it catches them.

    python -m tests.sim.explore.blind_faults --seed 22 --program 24 --core 12 --out faults.jsonl

A line of JSON a fault. It takes minutes of a processor a fault of the core, whose tests are compiled again.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from netsum.programs import compiled_program
from sim.core_calls import SHIPPED, CoreCode
from sim.explore.random_runs import SYSTEMS, RandomRuns
from sim.explore.scenario import BlockPass, ExplorerScenario
from sim.explore.search import Search
from sim.explore.system import System
from tests.sim.explore.faults.program import line, written
from tests.sim.explore.worker_texts import text_of, worker_with

PROGRAM: Final = compiled_program(64).json
ROOT: Final = Path(__file__).parents[3]
MODULES: Final = ("arrivals", "departures", "recovery")
CORE_TESTS: Final = tuple(
    f"tests/host_agent/test_{name}.py"
    for name in ("arrivals", "departures", "recovery", "quorum_chunk", "silence", "tree_path")
)
EXPLORE_S: Final = 30.0
"""Time of a scenario, in seconds."""
RANDOM_S: Final = 3.0
"""Time of a system, in seconds."""
NET_S: Final = 900.0

_TWO: Final = (BlockPass(), BlockPass())
SCENARIOS: Final = (
    ExplorerScenario("three sums", rounds=(*_TWO, BlockPass()), batches=False),
    ExplorerScenario("exponents", rounds=(BlockPass("float32"),), batches=False),
    ExplorerScenario(
        "header-only", rounds=(BlockPass("broadcast"), BlockPass("barrier"), BlockPass("max")), batches=False
    ),
    ExplorerScenario(
        "one of two",
        slots=2,
        rounds=(BlockPass("quorum"), BlockPass("contributors")),
        quorum=1,
        batches=False,
    ),
    ExplorerScenario("disagreement", rounds=(BlockPass(), BlockPass(agreed=False)), batches=False),
    ExplorerScenario("a new epoch", rounds=(BlockPass(),), epochs=2, batches=False),
    ExplorerScenario("unknown sources", rounds=(BlockPass(),), unknown_sources=True, batches=False),
    ExplorerScenario("two slots", slots=2, rounds=_TWO, batches=False),
    ExplorerScenario("chunk numbers wrap", rounds=_TWO, first_chunk=(1 << 32) - 1, batches=False),
    ExplorerScenario("a dead worker", rounds=(BlockPass(),), kills=1, batches=False),
    ExplorerScenario(
        "values", rounds=(BlockPass("saturating"), BlockPass("max"), BlockPass("sparse")), batches=False
    ),
    ExplorerScenario("a deadline", rounds=(BlockPass(),), deadlines=1),
    ExplorerScenario("two leaves", rounds=_TWO, batches=False, parents=(0, 0), leaves=(1, 2)),
    ExplorerScenario(
        "two leaves, exponents", rounds=(BlockPass("float32"),), batches=False, parents=(0, 0), leaves=(1, 2)
    ),
    ExplorerScenario(
        "a leaf of two", workers=3, rounds=(BlockPass(),), batches=False, parents=(0,), leaves=(0, 1, 1)
    ),
)


@dataclass(frozen=True)
class Fault:
    """A change: of the program (`path` is the changed one), or of a module of the worker core (`text` is its whole text)."""

    what: str
    path: Path | None = None
    module: str = ""
    text: str = ""


# --- The P4 program: BMv2 JSON ---

_OPS: Final = {
    "==": ["!="],
    "!=": ["=="],
    "<": ["<=", ">"],
    "<=": ["<"],
    ">": [">=", "<"],
    ">=": [">"],
    "and": ["or"],
    "or": ["and"],
    "&": ["|"],
    "|": ["&", "^"],
    "^": ["|"],
    "+": ["-", "|"],
    "-": ["+"],
    "<<": [">>"],
    ">>": ["<<"],
}


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "type" in node and "value" in node:
            yield node
        for each in node.values():
            yield from _nodes(each)
    elif isinstance(node, list):
        for each in node:
            yield from _nodes(each)


def _change_expression(expression: Any, draw: random.Random) -> bool:
    """Change an operator or a constant of an expression in place."""
    found = []
    for node in _nodes(expression):
        if (
            node["type"] == "expression"
            and isinstance(node["value"], dict)
            and node["value"].get("op") in _OPS
        ) or node["type"] == "hexstr":
            found.append(node)
    if not found:
        return False
    node = draw.choice(found)
    if node["type"] == "hexstr":
        value = int(node["value"], 16)
        node["value"] = hex(
            draw.choice([each for each in (0, value - 1, value + 1) if each >= 0 and each != value])
        )
    else:
        node["value"]["op"] = draw.choice(_OPS[node["value"]["op"]])
    return True


def _one_lane(text: str) -> bool:
    """Whether a text is about no lane, or about the first: the lanes are all alike."""
    return "lane_" not in text.replace("lanes", "") or "lane_0" in text


def program_fault(draw: random.Random, folder: Path, number: int) -> Fault:
    """Draw a fault of the P4 program."""
    while True:
        document = json.loads(PROGRAM.read_text())
        pipelines = document["pipelines"]
        branches = [each for pipeline in pipelines for each in pipeline["conditionals"]]
        actions = [each for each in document["actions"] if each["primitives"]]
        if draw.random() < 0.5:
            branch = draw.choice(branches)
            before = written(branch["expression"])
            match draw.randrange(4):
                case 0:
                    branch["true_next"], branch["false_next"] = branch["false_next"], branch["true_next"]
                    what = f"negated: {before}"
                case 1:
                    way = draw.choice(["true_next", "false_next"])
                    branch["true_next"] = branch["false_next"] = branch[way]
                    what = f"always {way == 'true_next'}: {before}"
                case _:
                    if not _change_expression(branch["expression"], draw):
                        continue
                    what = f"{before} ⇒ {written(branch['expression'])}"
        else:
            action = draw.choice(actions)
            places = [at for at, each in enumerate(action["primitives"]) if _one_lane(json.dumps(each))]
            if not places:
                continue
            at = draw.choice(places)
            primitive = action["primitives"][at]
            before = line(primitive)
            if draw.random() < 0.4:
                del action["primitives"][at]
                what = f"{action['name']}: without {before}"
            else:
                changed = copy.deepcopy(primitive)
                if not _change_expression(changed["parameters"][1:], draw):
                    continue
                action["primitives"][at] = changed
                what = f"{action['name']}: {before} ⇒ {line(changed)}"
        path = folder / f"changed{number}.json"
        path.write_text(json.dumps(document))
        return Fault(what, path)


# --- The worker core: Python ---

COMPARES: Final = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
BINARIES: Final = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Mult: ast.Add,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


def _sites(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for part in function.body:
            for node in ast.walk(part):
                if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARES:
                    yield node, "compare"
                elif isinstance(node, ast.BoolOp):
                    yield node, "bool"
                elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in BINARIES:
                    yield node, "binary"
                elif isinstance(node, ast.Constant) and type(node.value) is int:
                    yield node, "constant"
                elif isinstance(node, ast.If):
                    yield node, "condition"
                if isinstance(node, ast.Assign | ast.AugAssign):
                    left = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    if isinstance(left, ast.Attribute):  # without a local variable nothing compiles
                        yield node, "statement"


class _Without(ast.NodeTransformer):
    def __init__(self, gone: ast.AST) -> None:
        self._gone = gone

    def visit(self, node: ast.AST) -> Any:
        return ast.copy_location(ast.Pass(), node) if node is self._gone else self.generic_visit(node)


def core_fault(draw: random.Random) -> Fault:
    """Draw a fault of the worker core."""
    module = draw.choice(MODULES)
    tree = ast.parse(text_of(module))
    sites = list(_sites(tree))
    kind = draw.choice(sorted({each for _, each in sites}))
    node: Any = draw.choice([each for each, of in sites if of == kind])
    at = f"{module}.py:{node.lineno}"
    before = ast.unparse(node.test if kind == "condition" else node)
    match kind:
        case "compare":
            node.ops[0] = COMPARES[type(node.ops[0])]()
        case "bool":
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        case "binary":
            node.op = BINARIES[type(node.op)]()
        case "constant":
            node.value = draw.choice(
                [each for each in (0, node.value - 1, node.value + 1) if each != node.value]
            )
        case "condition":
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        case _:
            tree = _Without(node).visit(tree)
            return Fault(
                f"{at}: without {before}", None, module, ast.unparse(ast.fix_missing_locations(tree))
            )
    after = ast.unparse(node.test if kind == "condition" else node)
    return Fault(f"{at}: {before} ⇒ {after}", None, module, ast.unparse(ast.fix_missing_locations(tree)))


# --- The nets ---


def _worker(fault: Fault) -> CoreCode:
    return worker_with({fault.module: fault.text}) if fault.module else SHIPPED


def explore(fault: Fault) -> str:
    """Explore the scenarios; returns the name of the first one that violates a guarantee."""
    worker = _worker(fault)
    for scenario in SCENARIOS:
        system = System(scenario, fault.path or PROGRAM, worker)
        result = Search(system, order="largest", collect=False, memory_bytes=1 << 30).run(until_s=EXPLORE_S)
        if result.violation:
            return scenario.name
    return ""


def run_at_random(fault: Fault) -> str:
    """Make random runs of each system; returns the name of the first one that violates a guarantee."""
    worker = _worker(fault)
    for scenario in SYSTEMS:
        runs = RandomRuns(scenario, fault.path or PROGRAM, 1, worker)
        until = time.monotonic() + RANDOM_S
        if runs.run(lambda until=until: time.monotonic() > until):  # type: ignore[misc]
            return scenario.name
    return ""


def _pytest(arguments: list[str]) -> str:
    """Run tests in this process; returns the first that fails."""

    class First:
        name = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and not self.name:
                self.name = report.nodeid.split("/")[-1]

    first = First()
    status = pytest.main(
        [*arguments, "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[first]
    )
    return first.name or ("" if status == 0 else f"status {int(status)}")


def dataplane(fault: Fault) -> str:
    """Run the tests of the data plane; returns the first that fails."""
    embedded: Any = importlib.import_module("tests.dataplane.dataplane.embedded")
    shipped = embedded.program_files
    embedded.program_files = lambda lanes: (fault.path or PROGRAM, shipped(lanes)[1])
    return _pytest([str(ROOT / "tests/dataplane"), "--target", "embedded-64"])


def host_agent(fault: Fault) -> str:
    """Run the tests of the worker core in a copy of the project; returns the first that fails."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"), dirs_exist_ok=True)
        Path(folder, f"host_agent/protocol/{fault.module}.py").write_text(fault.text)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *CORE_TESTS]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": folder}
        )
    failed = [each for each in done.stdout.splitlines() if each.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" ")[1].split("/")[-1] if failed else "" if done.returncode == 0 else "ends"


def in_a_process(net: Callable[[Fault], str], fault: Fault) -> str:
    """Return a net's verdict on a fault, in a process of its own, as a fault may loop for ever or end it."""
    here, there = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            there.send(net(fault))
        except BaseException as error:
            there.send(f"{type(error).__name__}: {str(error)[:100]}")

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    there.close()
    try:
        return str(here.recv()) if here.poll(NET_S) else "does not end"
    except EOFError:
        return "the process ends"
    finally:
        process.kill()
        process.join()


def main() -> None:
    """Draw faults and write each net's verdict on them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--program", type=int, default=24)
    parser.add_argument("--core", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder, given.out.open("w") as out:
        faults = [program_fault(draw, Path(folder), number) for number in range(given.program)]
        faults += [core_fault(draw) for _ in range(given.core)]
        for fault in faults:
            nets = (explore, run_at_random, host_agent if fault.module else dataplane)
            said = {net.__name__: in_a_process(net, fault) for net in nets}
            print(json.dumps({"fault": fault.what, **said}, ensure_ascii=False), file=out, flush=True)


if __name__ == "__main__":
    main()
