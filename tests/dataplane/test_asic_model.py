"""Faults around the decisions of Tofino's program, in egress and in parsers, are caught on the ASIC model.

``pytest -s`` shows by which test.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dataplane.dataplane import asic_model

ROOT = Path(__file__).resolve().parents[2]
LANES = 8
COMPILE = "import sys, tofino, pathlib; tofino.compile_into(tofino.Variant('tofino', {}), pathlib.Path(sys.argv[1]))"

# Faults: the file, the original text, and its replacement.
FAULTS = {
    "egress does not take the replica id": (
        "single.p4",
        "meta.replica = replica_id;",
        "meta.replica = 0;",
    ),
    "egress computes the IPv4 checksum over the wrong address": (
        "target.p4",
        "hdr.frame.ipv4.src, hdr.frame.ipv4.dst",
        "hdr.frame.ipv4.src, hdr.frame.ipv4.src",
    ),
    "a flooded frame leaves only where it came from": (
        "netsum.p4",
        "intrinsic.egress_port == hdr.bridge.ingress_port",
        "intrinsic.egress_port != hdr.bridge.ingress_port",
    ),
    "egress cuts the copy of another worker": (
        "one_pass.p4",
        "HEADER_ONLY_COPY(1, 0)",
        "HEADER_ONLY_COPY(1, 1)",
    ),
    "a copy without lanes has the length of one with lanes": (
        "netsum.p4",
        "hdr.frame.udp.bytes = UDP_BYTES + NETSUM_HEADER_BYTES;",
        "",
    ),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.p4c,
    pytest.mark.timeout(1600),
    pytest.mark.skipif("NETSUM_LONG_TESTS" not in os.environ, reason="long; set NETSUM_LONG_TESTS=1"),
    pytest.mark.skipif(shutil.which("p4c-barefoot") is None, reason="p4c-barefoot is not on PATH"),
    pytest.mark.skipif(
        asic_model.TOFINO.harness not in os.environ,
        reason=f"{asic_model.TOFINO.harness} does not name the ASIC model's harness",
    ),
]


def copy_sources(folder: Path) -> None:
    for part in ("p4", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("build", "__pycache__"))


def compile_copy(folder: Path) -> Path:
    """Compile a copy of the program for few lanes and return the folder with its binary."""
    out = folder / "p4" / "build" / "tofino" / f"netsum_tofino_{LANES}"
    command = [sys.executable, "-c", COMPILE.format(LANES), str(out)]
    subprocess.run(command, cwd=folder / "p4", check=True, timeout=1200)
    return out / "pipe"


def first_failure(folder: Path) -> str:
    """Run a copy's tests on its program and return which fails first."""
    left_out = ("test_tna_logic", "test_asic_model", "test_hostile_packets")
    tests = [
        str(path) for path in (folder / "tests/dataplane").glob("test_*.py") if path.stem not in left_out
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    command += ["-c", os.devnull, "--target", f"tofino-model-{LANES}", *tests]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 1, done.stdout
    caught_by = re.findall(r"^FAILED \S*?(test_\w+\.py::\w+)", done.stdout, re.MULTILINE)
    assert caught_by, done.stdout
    return str(caught_by[0])


def without_matches(assembly: str) -> str:
    """Leave of each state of the ingress parser its first case, unconditional, as a faulty p4c does (docs/tofino.md)."""
    kept, in_parser, cases, matches = [], False, 0, False
    for line in assembly.splitlines(keepends=True):
        if not line.startswith(" "):
            in_parser, matches = line.startswith("parser ingress"), False
        indent = len(line) - len(line.lstrip())
        if in_parser and indent <= 4:
            matches, cases = False, 0
        if in_parser and line.startswith("      match:"):
            matches = True
            continue
        if matches and indent == 6:
            cases += 1
            line = "      *:\n"
        if not (matches and cases > 1):
            kept.append(line)
    return "".join(kept)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_caught(tmp_path: Path, fault: str) -> None:
    copy_sources(tmp_path)
    name, right, wrong = FAULTS[fault]
    path = tmp_path / "p4" / "tna" / name
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    compile_copy(tmp_path)
    print(f"\n{fault}: {first_failure(tmp_path)}")


def test_parser_that_matches_nothing_is_caught(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    pipe = compile_copy(tmp_path)
    (assembly,) = pipe.glob("*.bfa")
    assembly.write_text(without_matches(assembly.read_text()))
    subprocess.run(
        ["bfas", "--singlewrite", "-o", ".", assembly.name],
        cwd=pipe,
        check=True,
        capture_output=True,
        timeout=600,
    )
    print(f"\na parser that matches nothing: {first_failure(tmp_path)}")
