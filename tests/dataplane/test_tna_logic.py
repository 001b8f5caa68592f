"""Faults put into the register actions and tables of Tofino's program are caught by the tests of this folder.

``pytest -s`` tells by which.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dataplane.tna_logic import translate

ROOT = Path(__file__).resolve().parents[2]
SLOT, LANE, PASSES, TREE, OUTCOME = "slot.p4", "lane.p4", "passes.p4", "tree.p4", "tree_outcome.p4"
NETSUM = "netsum.p4"
NEWER = "held.epoch != (int<32>) meta.admission.epoch || (int<32>) hdr.netsum.chunk - held.chunk > 0"
RANGE = " &&\n            (meta.admission.index & BEYOND_POOL) == 0"
CHILD, PARENT = "((meta.admission.worker_bit != 0 && (", "(meta.admission.worker_bit == 0 && ("

# What is done wrong: the file, what stands there, and what is put in its place.
FAULTS = {
    "the older chunk wins": (SLOT, NEWER, NEWER.replace("> 0", "< 0")),
    "chunks are compared as they are, not modulo 2^32": (
        SLOT,
        "(int<32>) hdr.netsum.chunk - held.chunk > 0",
        "hdr.netsum.chunk > (bit<32>) held.chunk",
    ),
    "the epoch is not compared": (SLOT, NEWER, NEWER.partition(" || ")[2]),
    "a stale packet is taken": (SLOT, "held_chunk == (int<32>) hdr.netsum.chunk", "held_chunk == held_chunk"),
    "a new tag keeps the bitmap": (
        SLOT,
        "held.seen = BITS;",
        "held.seen = held.seen | BITS;",
    ),
    "another collective sets its bit": (
        SLOT,
        "if (IS_COLLECTIVE(held.collective)) {",
        "held.seen = held.seen | BITS; if (IS_COLLECTIVE(held.collective)) {",
    ),
    "a new tag keeps the collective": (SLOT, "held = collective;", "held = held;"),
    "a disputed slot is forgiven": (SLOT, "held = COLLECTIVE_DISPUTED;", "held = held;"),
    "a PROBE takes the tag": (SLOT, "KIND_PROBE: look_at_tag();", "KIND_PROBE: take_tag();"),
    "a PROBE disputes the collective": (
        SLOT,
        "(KIND_PROBE, 0): look_at_collective();",
        "(KIND_PROBE, 0): compare_collective();",
    ),
    "a new tag keeps has_lanes": (SLOT, "held = FIRST_MARK;", "held = held | FIRST_MARK;"),
    "a new tag keeps the exponent": (
        SLOT,
        "held = hdr.netsum.exponent;",
        "held = max(held, hdr.netsum.exponent);",
    ),
    "a duplicate raises the exponent": (
        SLOT,
        "(_, _, 1, 0, _): read_exponent();",
        "(_, _, 1, 0, _): max_exponent();",
    ),
    "the full mask is not awaited": (SLOT, "if (after == meta.admission.full_mask) {", "if (after != 0) {"),
    "the job's range is not held": (SLOT, "(meta.admission.room != 0 || is_further_pass)", "true"),
    "the register's range is not held": (SLOT, RANGE, ""),
    "a duplicate is added": (LANE, "LANE_AGAIN(1) ", ""),
    "the first lanes are added": (LANE, "value = lane;", "value = value |+| lane;"),
    "the sum wraps": (LANE, "value |+| lane", "value + lane"),
    "MAX starts from 0": (SLOT, "            (ANY_KIND 1, 0, OP_MAX): set_seed(SEED_LOWEST);\n", ""),
    "MAX is unsigned": (
        LANE,
        "value = max(value, lane);",
        "if ((bit<32>) lane > (bit<32>) value) { value = lane; }",
    ),
    "passes share their cells": (
        PASSES,
        "hdr.netsum.pool_index = hdr.netsum.pool_index + (bit<16>) POOL_INDICES;",
        "hdr.netsum.pool_index = hdr.netsum.pool_index;",
    ),
    "a duplicate goes no further": (
        PASSES,
        "(false, _, _, OUTCOME_DUPLICATE_ANSWERED, _): add_next(1);",
        "(false, _, _, OUTCOME_DUPLICATE_ANSWERED, _): NoAction();",
    ),
    "what one asked for goes to all": (
        PASSES,
        "OUTCOME_DUPLICATE_ANSWERED, true): read_next(LAST_PASS - 1, PASS_READ_FOR_ONE);",
        "OUTCOME_DUPLICATE_ANSWERED, true): read_next(LAST_PASS - 1, PASS_READ_FOR_ALL);",
    ),
    "lanes that were added are sent along": (PASSES, "        hdr.lanes.setInvalid();\n", ""),
    "BOR is AND": (LANE, "value = value | lane;", "value = value & lane;"),
}

# What is done wrong in the slots of quorums.
QUORUM_FAULTS = {
    "a job needs no quorum": (SLOT, "(hdr.netsum.flags & FLAG_QUORUM == 0 || quorum.workers != 0)", "(true)"),
    "a slot is of a quorum or not": (SLOT, "{ hdr.netsum.flags[2:2], ", "{ "),
    "a duplicate counts for the quorum": (
        SLOT,
        "(OF_QUORUM, 1, 0, 0): count_down();",
        "(OF_QUORUM, 1, 0, _): count_down();",
    ),
    "the late count on": (SLOT, "if (held > 1) {", "if (held > 0) {"),
    "a late contribution is a member": (
        SLOT,
        "(OF_QUORUM, _, 1, 0, 1, _): read_members();",
        "(OF_QUORUM, _, 1, 0, 1, _): add_member();",
    ),
    "a late contribution raises the exponent": (SLOT, "(OF_QUORUM, 1, 1, 0, _): read_exponent();", ""),
    "a new tag keeps the members": (
        SLOT,
        "held = meta.admission.worker_bit;",
        "held = held | meta.admission.worker_bit;",
    ),
    "a STATUS has the late": (SLOT, "(OF_QUORUM, 1, _, _, _, _): read_members();", ""),
    "all are told what a late one asked for": (
        SLOT,
        "answer_status(OUTCOME_LATE)",
        "answer_status(OUTCOME_COMPLETED)",
    ),
    "a quorum of one is not complete": (
        SLOT,
        "1, 1, _, 1, _, 1, _, OF_QUORUM, _): answer_status(OUTCOME_COMPLETED);",
        "1, 1, _, 1, _, 1, _, OF_QUORUM, _): drop_after(OUTCOME_ADDED);",
    ),
    "a roll call goes through all passes": (
        NETSUM,
        "if (hdr.frame.netsum.flags & FLAG_QUORUM == 0)",
        "if (true)",
    ),
}

# What a switch in a tree does wrong.
TREE_FAULTS = {
    "a slot that is not full takes a RESULT": (
        SLOT,
        "if (held.collective == collective && held.seen == bits) {",
        "if (held.collective == collective) {",
    ),
    "a final slot takes another RESULT": (
        SLOT,
        "held.collective = held.collective + COLLECTIVE_FINAL;",
        "held.collective = held.collective;",
    ),
    "a child finishes a slot": (SLOT, PARENT, "(true && ("),
    "the parent contributes": (SLOT, CHILD, "((true && ("),
    "a new tag stays final": (
        SLOT,
        "held = FIRST_MARK;",
        "held = FIRST_MARK | (held & MARK_FINAL);",
    ),
    "a RESULT leaves the mark alone": (
        SLOT,
        "(KIND_RESULT, 1, 0, _, _): mark_final();",
        "(KIND_RESULT, 1, 0, _, _): read_has_lanes();",
    ),
    "the exponent stays the children's": (
        SLOT,
        "(KIND_RESULT, 1, 0, _, _): take_exponent();",
        "(KIND_RESULT, 1, 0, _, _): read_exponent();",
    ),
    "the lanes stay the children's": (
        LANE,
        "(KIND_RESULT, _, _, _, _, _, _): write_or_read();",
        "(KIND_RESULT, _, _, _, _, _, _): NoAction();",
    ),
    "lanes that the slot did not take are written": (
        LANE,
        "(KIND_RESULT, _, _, _, _, _, 0): NoAction();",
        "",
    ),
    "every child is passed up again": (
        OUTCOME,
        "1, 1, 0 &&& MARK_FINAL, 1, _, true): send_up(",
        "1, 1, 0 &&& MARK_FINAL, _, _, true): send_up(",
    ),
    "a PROBE goes further than the contribution": (
        OUTCOME,
        "(true, 1, 1, KIND_PROBE, _, _, 1, _, 1, _, 0, _, _): answer_status(OUTCOME_PROBED);",
        "",
    ),
    "a final slot passes a PROBE up": (
        OUTCOME,
        "KIND_PROBE, _, _, 1, _, 1, 0 &&& MARK_FINAL, _",
        "KIND_PROBE, _, _, 1, _, 1, _, _",
    ),
    "levels are not counted": (TREE, "pass_status_on(1 * FLAGS_ONE_LEVEL)", "pass_status_on(0)"),
    "the way back is not taken": (
        TREE,
        "hdr.ipv4.identification = way_on;",
        "hdr.ipv4.identification = way_here;",
    ),
}
ALL_FAULTS = FAULTS | QUORUM_FAULTS | TREE_FAULTS


def test_program_is_that_of_the_sources() -> None:
    assert translate.STAMP.read_text() == translate.stamp(), (
        "run: python tests/dataplane/tna_logic/translate.py"
    )


@pytest.mark.slow
@pytest.mark.p4c
@pytest.mark.skipif("NETSUM_LONG_TESTS" not in os.environ, reason="long; set NETSUM_LONG_TESTS=1")
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("fault", ALL_FAULTS)
def test_fault_is_caught(tmp_path: Path, fault: str) -> None:
    for folder in ("p4", "tests"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("build", "__pycache__")
        )
    name, right, wrong = ALL_FAULTS[fault]
    path = tmp_path / "p4" / "tna" / name
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    copy = tmp_path / "tests" / "dataplane"
    engine = "tna-tree" if fault in TREE_FAULTS else "tna-passes" if name in (PASSES, NETSUM) else "tna-logic"
    program = engine.replace("-", "_")
    translated = [sys.executable, str(copy / "tna_logic" / "translate.py"), program]
    subprocess.run(translated, check=True, timeout=600)
    tests = [
        str(path)
        for path in sorted(
            copy.glob("test_*.py"), key=lambda path: path.stem not in ("test_quorum", "test_tree")
        )
        if path.stem not in ("test_tna_logic", "test_hostile_packets")
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    target = f"{engine}-{translate.LANES * translate.PASSES[program]}"
    command += ["-c", os.devnull, "--target", target, *tests]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 1, done.stdout
    caught_by = re.findall(r"^(?:FAILED|ERROR) \S*?(test_\w+\.py::\w+)", done.stdout, re.MULTILINE)
    assert caught_by, done.stdout
    print(f"\n{fault}: {caught_by[0]}")
