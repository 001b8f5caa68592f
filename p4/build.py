"""Compile the P4 program for BMv2 and the embedded engine.

``python p4/build.py`` writes p4/build: the program's JSON, P4Info and capabilities for each number of lanes, and a
stamp, a hash of the sources. ``--check`` compares the stamp with the sources (no compiler needed). ``--describe`` writes the
capabilities of programs that are compiled already.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

P4 = Path(__file__).resolve().parent
BUILD = P4 / "build"
STAMP = BUILD / "stamp.json"
TOP = P4 / "v1model" / "netsum.p4"
COMPILER = "p4c-bm2-ss"
COMPILE_TIMEOUT_S = 600
COMMENT = re.compile(rb"[ \t]*//.*")
REGISTER = re.compile(
    r'^registers \{\n  preamble \{.*?^    name: "([^"]+)".*?^  size: (\d+)', re.MULTILINE | re.DOTALL
)
TABLE = re.compile(r'^tables \{\n  preamble \{.*?^    name: "(?:[^"]+\.)?(\w+)"', re.MULTILINE | re.DOTALL)
LANE = re.compile(
    r"\.lane_\d+(\.held)?$"
)  # On v1model, all lanes are in one control; on TNA, each has its own.


class BuildError(Exception):
    """The program cannot be compiled here, or its build is not that of its sources."""


def constants_are_generated() -> bool:
    """Compare the specification with that from which p4/spec/generate.py wrote the constants."""
    specification = hashlib.sha256((P4 / "spec" / "protocol.toml").read_bytes()).hexdigest()[:16]
    return specification in (P4 / "shared" / "constants.p4").read_text(encoding="utf-8")


def specification() -> dict[str, Any]:
    """Read the specification."""
    return tomllib.loads((P4 / "spec" / "protocol.toml").read_text(encoding="utf-8"))


def lane_counts(target: str) -> list[int]:
    """Read for which numbers of lanes a target's program is compiled."""
    counts: list[int] = specification()["lanes"]["counts"][target]
    return counts


def output_names(lanes: int) -> tuple[str, str, str]:
    """Name the JSON, the P4Info and the capabilities of the program with this many lanes."""
    stem = f"netsum_v1model_{lanes}"
    return f"{stem}.json", f"{stem}.p4info.txtpb", f"{stem}.capabilities.toml"


def digest(files: list[Path]) -> str:
    """Hash files with their names, so that a moved line and a moved file both show; P4 without its comments."""
    total = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        if path.suffix == ".p4":
            content = COMMENT.sub(b"", content)
        total.update(f"{path.relative_to(P4).as_posix()} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def source_digest() -> str:
    """Hash the sources of the build."""
    return digest([*(P4 / "shared").glob("*.p4"), *(P4 / "v1model").glob("*.p4")])


def output_digest(folder: Path) -> str:
    """Hash the compiled files."""
    files = [folder / name for lanes in lane_counts("v1model") for name in output_names(lanes)]
    total = hashlib.sha256()
    for path in files:
        total.update(path.read_bytes() if path.exists() else b"")
    return total.hexdigest()


def compiler_version() -> str:
    """Ask the compiler for its version.

    Raises
    ------
    BuildError
        There is no compiler on PATH.
    """
    if shutil.which(COMPILER) is None:
        raise BuildError(
            f"{COMPILER} is not on PATH: install p4c (https://github.com/p4lang/p4c), or use the program in "
            "p4/build, which needs no compiler as long as the P4 sources are not changed"
        )
    done = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"^Version (\S+)", done.stdout + done.stderr, re.MULTILINE)
    if found is None:
        raise BuildError(f"{COMPILER} does not say its version; is it p4c?")
    return found[1]


def without_sources(node: Any) -> Any:
    """Take out of the JSON where each thing stands in the sources: it names the builder's folders."""
    if isinstance(node, dict):
        return {key: without_sources(value) for key, value in node.items() if key != "source_info"}
    if isinstance(node, list):
        return [without_sources(value) for value in node]
    return node


def one_line_each(program: dict[str, Any]) -> str:
    """Write the JSON with a line for each action, table, header and so on: differences can be read."""
    parts = []
    for key, value in program.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(json.dumps(element, separators=(",", ":")) for element in value)
            parts.append(f"{json.dumps(key)}:[\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}")
    return "{" + ",\n".join(parts) + "}\n"


def capabilities(p4info: Path) -> dict[str, str | int | bool]:
    """Derive from its P4Info what a program can do; netsum_common/targets/capabilities.py explains the keys.

    Raises
    ------
    BuildError
        It is not the P4Info of an aggregation program.
    """
    pool = specification()["pool"]
    try:
        text = p4info.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"cannot read the P4Info {p4info}: {error}") from None
    registers = {name: int(size) for name, size in REGISTER.findall(text)}
    tables = TABLE.findall(text)
    lanes = [size for name, size in registers.items() if LANE.search(name)]
    architecture = re.search(r'^  arch: "(\w+)"', text, re.MULTILINE)
    if not lanes or architecture is None:
        raise BuildError(
            f"{p4info} is not an aggregation program's: it names no registers lane_0, lane_1, …, or no architecture"
        )
    # Each register array has a cell for each pool index and pass; only Tofino's programs have several passes.
    cells = lanes[0] // pool["versions"]
    passes = cells // pool["slots"]["tna"] if "next_pass" in tables else 1
    has = {name.rpartition(".")[2] for name in registers}
    return {
        "architecture": architecture[1],
        "lanes": len(lanes) * passes,
        "slots": cells // passes,
        "passes": passes,
        "trees": "job_parent" in tables,
        "header_only": passes == 1 and not has.isdisjoint({"slot_header_only", "slot_workers"}),
        # On Tofino, one register holds a quorum's members or the workers that need the header alone.
        "lanes_in_quorums": "slot_header_only" in has,
        # Nor are there bits for a mark beside the number of contributions that a quorum misses.
        "congestion_marks": "slot_header_only" in has,
    }


def describe(p4info: Path) -> Path:
    """Write the capabilities of a compiled program beside its P4Info; return their file. Raises as `capabilities`."""
    found = capabilities(p4info)
    path = p4info.with_name(p4info.name.partition(".p4info")[0] + ".capabilities.toml")
    path.write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in found.items()), encoding="utf-8"
    )
    return path


def compile_into(folder: Path) -> None:
    """Compile the program for every number of lanes.

    Raises
    ------
    BuildError
        The compiler refuses the program, or warns about it.
    """
    for lanes in lane_counts("v1model"):
        json_path, p4info_path, _ = (folder / name for name in output_names(lanes))
        command = [
            COMPILER, "--std", "p4-16", "-D", f"LANES={lanes}",
            # p4c does not see that a parser state is reached only where a select found the header valid.
            "--Wdisable=invalid-header", "--Wdisable=uninitialized-use",
            "--p4runtime-files", str(p4info_path), "-o", str(json_path), str(TOP),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode or done.stderr.strip():
            raise BuildError(f"{COMPILER} does not accept {TOP} with {lanes} lanes:\n{done.stderr.strip()}")
        program = without_sources(json.loads(json_path.read_text(encoding="utf-8")))
        program["program"] = TOP.relative_to(P4.parent).as_posix()
        json_path.write_text(one_line_each(program), encoding="utf-8")
        describe(p4info_path)


def build() -> None:
    """Compile into p4/build and stamp it."""
    version = compiler_version()
    BUILD.mkdir(exist_ok=True)
    compile_into(BUILD)
    stamp = {"compiler": version, "sources": source_digest(), "outputs": output_digest(BUILD)}
    STAMP.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")


def check_stamp() -> None:
    """Compare p4/build with the sources, and those with the specification, without a compiler.

    Raises
    ------
    BuildError
        A file is missing, p4/build was made from other sources, or it was changed by hand.
    """
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
        generated = constants_are_generated()
        sources, outputs = stamp["sources"] == source_digest(), stamp["outputs"] == output_digest(BUILD)
    except FileNotFoundError as missing:
        raise BuildError(f"there is no {missing.filename}: run `make p4`") from None
    except (OSError, ValueError, LookupError, TypeError) as fault:  # A file that is being edited or merged.
        raise BuildError(f"p4/build cannot be compared with p4/ ({fault}): run `make p4`") from None
    if not generated:
        raise BuildError(
            "p4/spec/protocol.toml was changed after the constants were generated: run `make p4`"
        )
    if not sources:
        raise BuildError("p4/build was compiled from other sources than those in p4/: run `make p4`")
    if not outputs:
        raise BuildError("a file in p4/build is not the one that was compiled: run `make p4`")


def main() -> int:
    """Build, or check the build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare p4/build's stamp with the sources")
    parser.add_argument(
        "--describe",
        type=Path,
        nargs="+",
        metavar="P4INFO",
        help="write the capabilities of these compiled programs",
    )
    arguments = parser.parse_args()
    try:
        if arguments.describe:
            for p4info in arguments.describe:
                describe(p4info)
        elif arguments.check:
            check_stamp()
        else:
            build()
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
