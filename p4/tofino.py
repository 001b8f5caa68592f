"""Compile the P4 program for Tofino.

``python p4/tofino.py`` compiles for each chip and lane count. It writes the compiler's output (binaries, P4Info, BF-Runtime
description, reports) and each program's capabilities in ``--out``, and the hashes of the sources and of each P4Info in
p4/build/tofino_stamp.json. ``--check`` compares the stamp with the sources (no compiler needed).
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build import BUILD, P4, BuildError, describe, digest, lane_counts

TOP = P4 / "tna" / "netsum.p4"
STAMP = BUILD / "tofino_stamp.json"
OUT = BUILD / "tofino"
PROGRAM = TOP.stem
COMPILER = "p4c"
GENERATE_CONF = "p4c-gen-conf"
ARCHITECTURES = {"tofino": "tna", "tofino2": "t2na"}
PASSES = {"tofino": (2, 8), "tofino2": (4,)}
TREE_LANES = {"tofino": 16, "tofino2": 32}
COMPILE_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Variant:
    """A chip, a number of lanes, in how many passes a packet gets through them, and whether the switch may have a parent."""

    target: str
    lanes: int
    passes: int = 1
    tree: bool = False

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"netsum_{self.target}_{'tree_' if self.tree else ''}{self.lanes}"


def variants() -> list[Variant]:
    """List the variants to compile."""
    return [
        *(Variant(target, lanes) for target in ARCHITECTURES for lanes in lane_counts(target)),
        *recirculating(),
        *in_trees(),
    ]


def recirculating() -> list[Variant]:
    """List the programs for more lanes than one pass has room for."""
    return [
        Variant(target, passes * max(lane_counts(target)), passes)
        for target, several in PASSES.items()
        for passes in several
    ]


def one_pass() -> list[Variant]:
    """List the programs for as many lanes as one pass has room for, one for each chip."""
    return [Variant(target, max(lane_counts(target))) for target in ARCHITECTURES]


def in_trees() -> list[Variant]:
    """List the programs for switches in a tree, with as many lanes as there is room for, one for each chip."""
    return [Variant(target, TREE_LANES[target], tree=True) for target in ARCHITECTURES]


def shipped() -> list[Variant]:
    """List the programs whose P4Info has a hash in the stamp."""
    return [*one_pass(), *recirculating(), *in_trees()]


def p4info_path(variant: Variant, folder: Path | None = None) -> Path:
    """Name the P4Info of a program, in the folder that it was compiled into; by default where `make p4-tofino` compiles it."""
    return (folder or OUT / variant.name) / f"{variant.name}.p4info.txtpb"


def p4info_hash(variant: Variant, folder: Path | None = None) -> str:
    """Return the SHA-256 of a compiled program's P4Info."""
    return hashlib.sha256(p4info_path(variant, folder).read_bytes()).hexdigest()


def source_digest() -> str:
    """Hash the sources of the programs."""
    return digest([*(P4 / "shared").glob("*.p4"), *(P4 / "tna").glob("*.p4")])


def compiler_version() -> str:
    """Ask for the compiler's version, with the back end for Tofino.

    Raises
    ------
    BuildError
        There is no p4c, or one without that back end.
    """
    if shutil.which(COMPILER) is None or shutil.which("p4c-barefoot") is None:
        raise BuildError(
            "p4c with its Tofino back end (p4c-barefoot) is not on PATH: build p4c "
            "(https://github.com/p4lang/p4c) with -DENABLE_TOFINO=ON, see docs/tofino.md"
        )
    done = subprocess.run(
        ["p4c-barefoot", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = re.search(r"^Version:? (\S+)", done.stdout + done.stderr, re.MULTILINE)
    if found is None:
        raise BuildError("p4c-barefoot does not say its version")
    return str(found[1])


def compile_into(variant: Variant, folder: Path) -> None:
    """Compile one program into a folder.

    Raises
    ------
    BuildError
        The compiler refuses it, or is one that compiles parsers wrongly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        COMPILER, "--target", variant.target, "--arch", ARCHITECTURES[variant.target], "--std", "p4-16", "-g",
        "-D", f"LANES={variant.lanes // variant.passes}", "-D", f"PASSES={variant.passes}", "-D", f"TREE={int(variant.tree)}",
        "-o", str(folder), "--p4runtime-files", str(p4info_path(variant, folder)),
        "--p4runtime-force-std-externs",  # counters and registers as P4Runtime has them, not as TNA's own externs
        str(TOP),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    if done.returncode:
        raise BuildError(f"p4c does not accept {TOP} for {variant.name}:\n{done.stdout}{done.stderr}".strip())
    if not parser_matches(assembly(folder)):
        raise BuildError(
            f"p4c made a parser for {variant.name} that matches nothing: it is one with the fault of p4c's commit "
            "e3af57fc19; see docs/tofino.md"
        )
    describe(p4info_path(variant, folder))
    write_conf(variant, folder)


def assembly(folder: Path) -> str:
    """Read the assembly that the compiler wrote.

    Raises
    ------
    BuildError
        There is none.
    """
    found = sorted(folder.rglob("*.bfa"))
    if not found:
        raise BuildError(f"p4c wrote no assembly into {folder}")
    return found[0].read_text(encoding="utf-8")


def parser_matches(text: str) -> int:
    """Count the states of the ingress parser that match anything, in the assembly."""
    parser = re.search(r"^parser ingress.*\n(?:[ \t].*\n|\n)*", text, re.MULTILINE)
    return len(re.findall(r"^\s+match:", parser[0], re.MULTILINE)) if parser else 0


def write_conf(variant: Variant, folder: Path) -> None:
    """Write the ``.conf`` that switch drivers and `netsum_common.targets` read: p4c's driver leaves it out."""
    command = [
        GENERATE_CONF, "--conf-type", "BF-RT", "--name", PROGRAM, "--device", variant.target, "--outputdir", ".",
        "--bfrt-name", "bfrt.json", "--p4-version", "p4-16", "--pipe", "pipe",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    if done.returncode:
        raise BuildError(f"{GENERATE_CONF} failed for {variant.name}:\n{done.stderr}".strip())


def build(out: Path, jobs: int) -> None:
    """Compile all programs, `jobs` at a time; write the stamp."""
    version = compiler_version()

    def compile_one(variant: Variant) -> None:
        started = time.monotonic()
        compile_into(variant, out / variant.name)
        print(f"{variant.name}: {time.monotonic() - started:.0f} s", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compile_one, variants()))
    stamp = {
        "compiler": version,
        "sources": source_digest(),
        "p4info": {variant.name: p4info_hash(variant, out / variant.name) for variant in shipped()},
    }
    STAMP.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")


def check_stamp() -> None:
    """Compare the stamp with the sources, without a compiler.

    Raises
    ------
    BuildError
        It is missing, or was made from other sources.
    """
    if not STAMP.exists():
        raise BuildError(f"there is no {STAMP}: run `make p4-tofino`")
    stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    if stamp["sources"] != source_digest():
        raise BuildError(f"{STAMP.name} was made from other sources than those in p4/: run `make p4-tofino`")


def main() -> int:
    """Compile, or check the stamp."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare the stamp with the sources",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        help="folder for what p4c writes",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="how many programs to compile at a time, with up to 1.4 GB each",
    )
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs: expected 1 at least, not {arguments.jobs}")
    try:
        if arguments.check:
            check_stamp()
        else:
            build(arguments.out, arguments.jobs)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
