"""Draw mutants from the hash of a commit, run the nets of their part on each, and say which are found.

    python -m tests.mutants --count 200 --minutes 60
    python -m tests.mutants --report

A copy of the project is changed, never the checkout. What is done is kept in build/mutants/COMMIT.jsonl, and another call goes on
behind it. `equivalents.toml` gives the reason why a mutant changes nothing, by its words. A survivor makes the exit status 1.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.mutants.drawing import Mutant, draw_mutants
from tests.mutants.nets import PARTS, Net, run

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "mutants"
EQUIVALENTS: Final = Path(__file__).parent / "equivalents.toml"
PATIENCE: Final = 4.0
"""How many times the time of a net on the unchanged project one on a mutant may take."""
FIRST_S: Final = 1800.0
"""Limit of a net on the unchanged project, which compiles everything, in seconds."""

Row = dict[str, Any]


def main() -> int:
    """Run or report; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="mutants to draw")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no mutant after this time")
    parser.add_argument("--part", choices=PARTS, action="append", help="only these parts; default: all")
    parser.add_argument("--report", action="store_true", help="run nothing; say what is known")
    options = parser.parse_args()
    commit = _git("rev-parse", "HEAD")
    journal = BUILD / f"{commit[:12]}.jsonl"
    rows = _known(journal)
    if not options.report:
        BUILD.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + 60 * options.minutes
        tree = _copy(commit)
        wanted = [
            each
            for each in draw_mutants(int(commit[:8], 16), options.count, tree)
            if each.part in (options.part or PARTS)
        ]
        limits = _limits(tree, commit, {each.part for each in wanted})
        for mutant in wanted:
            if mutant.number in {row["number"] for row in rows}:
                continue
            if time.monotonic() > until:
                break
            rows.append(_tried(mutant, tree, limits))
            with journal.open("a", encoding="utf-8") as file:
                print(json.dumps(rows[-1], ensure_ascii=False), file=file)
            found = {net: said for net, (said, _) in rows[-1]["nets"].items() if said}
            print(f"{mutant.number} {mutant.words}\n    {found or 'SURVIVED'}", flush=True)
    return _report(rows)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"mutants are drawn from a commit, so this must be a git checkout: {done.stderr.strip()}"
        )
    return done.stdout.strip()


def _known(journal: Path) -> list[Row]:
    if not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]


def _copy(commit: str) -> Path:
    """Return a copy of the commit; one that is there keeps its machine code."""
    tree = BUILD / f"tree-{commit[:12]}"
    if not tree.exists():
        for old in BUILD.glob("tree-*"):
            shutil.rmtree(old)
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, tree], check=True)
        subprocess.run(["git", "checkout", "--quiet", commit], cwd=tree, check=True)
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=tree, check=True)
    return tree


def _limits(tree: Path, commit: str, parts: set[str]) -> dict[str, float]:
    """Return the limit of each net, from its time on the unchanged project, where none may find anything."""
    kept = BUILD / f"{commit[:12]}.limits.json"
    limits: dict[str, float] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for net in dict.fromkeys(net for name in sorted(parts) for net in PARTS[name].nets):
        if net.name in limits:
            continue
        # The first run compiles. A net of what a change concerns runs nothing in the second.
        for again in (False, True)[: 1 if net.later else 2]:
            verdict = run(net, tree, FIRST_S, first=True)
            if verdict.found:
                raise SystemExit(
                    f"the net {net.name!r} finds something in the unchanged project: {verdict.found}"
                )
            print(f"{net.name}: {verdict.seconds:.0f} s{'' if again else ', compiling'}", flush=True)
        limits[net.name] = PATIENCE * verdict.seconds + 60.0
        kept.write_text(json.dumps(limits), encoding="utf-8")
    return limits


def _tried(mutant: Mutant, tree: Path, limits: dict[str, float]) -> Row:
    """Run the nets on a mutant, until one has found it; those that always run run too."""
    path = tree / mutant.path
    original = path.read_bytes()
    nets: dict[str, tuple[str, float]] = {}
    try:
        path.write_text(mutant.text, encoding="utf-8")
        for net in PARTS[mutant.part].nets:
            if net.always or not any(said for said, _ in nets.values()):
                verdict = run(net, tree, limits[net.name])
                nets[net.name] = verdict.found, round(verdict.seconds, 1)
    finally:
        path.write_bytes(original)
    return {"number": mutant.number, "part": mutant.part, "mutant": mutant.words, "nets": nets}


def _equivalents() -> dict[str, str]:
    with EQUIVALENTS.open("rb") as file:
        return {each["mutant"]: each["reason"] for each in tomllib.load(file).get("equivalent", [])}


def _report(rows: list[Row]) -> int:
    """Print what is found by part and by net, and the survivors; return the exit status."""
    reasons = _equivalents()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    survivors = []
    for row in rows:
        count = counts[row["part"]]
        found = [net for net, (said, _) in row["nets"].items() if said]
        if found:
            count.update(["found", *found])
        elif row["mutant"] in reasons:
            count["equivalent"] += 1
        else:
            count["survived"] += 1
            survivors.append(row["mutant"])
    for part, count in counts.items():
        print(f"{part}: {', '.join(_shares(part, count))}")
    print(*(f"survived: {each}" for each in survivors), sep="\n")
    return 1 if survivors or not rows else 0


def _shares(part: str, count: Counter[str]) -> Iterator[str]:
    different = count["found"] + count["survived"]
    yield f"{count['found']} of {different} found"
    yield f"{count['equivalent']} equivalent"
    nets: tuple[Net, ...] = PARTS[part].nets
    yield from (f"{net.name} {count[net.name]}" for net in nets)


if __name__ == "__main__":
    sys.exit(main())
