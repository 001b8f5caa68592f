"""The mutants that a seed draws."""

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.nets import PARTS, Part
from tests.mutants.python_changes import count_of_sites, draw_change
from tests.sim.explore.blind_faults import program_fault


@dataclass(frozen=True)
class Mutant:
    """A file of the project with one change: its path in the project, its new text, and the change in words."""

    number: int
    part: str
    path: str
    text: str
    words: str


def files_of(part: Part, root: Path) -> list[Path]:
    """Return the Python files of a part, from which those of generated code are left out."""
    found = []
    for source in part.sources:
        path = root / source
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    names = [path.relative_to(root).as_posix() for path in found]
    return [root / name for name in names if "_pb2" not in name and name not in part.without]


def draw_mutants(seed: int, count: int, root: Path) -> list[Mutant]:
    """Draw mutants of all parts, in proportion to their shares; no two are alike."""
    draw = random.Random(seed)
    shares = {name: part.mutants for name, part in PARTS.items()}
    order = [name for name, share in shares.items() for _ in range(share)]
    draw.shuffle(order)
    weights = {
        name: {path: count_of_sites(path.read_text(encoding="utf-8")) for path in files_of(part, root)}
        for name, part in PARTS.items()
        if name != "program"
    }
    mutants: list[Mutant] = []
    seen: set[str] = set()
    while len(mutants) < count:
        name = order[len(mutants) % len(order)]
        mutant = _of_program(draw, len(mutants)) if name == "program" else None
        if mutant is None:
            paths = weights[name]
            (path,) = draw.choices(list(paths), list(paths.values()))
            change = draw_change(path.read_text(encoding="utf-8"), draw)
            assert change is not None
            relative = path.relative_to(root).as_posix()
            words = f"{relative}:{change.line}: {change.before} ⇒ {change.after}"
            mutant = Mutant(len(mutants), name, relative, change.text, words)
        if mutant.words not in seen:
            seen.add(mutant.words)
            mutants.append(mutant)
    return mutants


def _of_program(draw: random.Random, number: int) -> Mutant:
    with tempfile.TemporaryDirectory() as folder:
        fault = program_fault(draw, Path(folder), number)
        assert fault.path is not None
        text = fault.path.read_text(encoding="utf-8")
    (path,) = PARTS["program"].sources
    return Mutant(number, "program", path, text, f"{path}: {fault.what}")
