"""Faults put into the register actions and tables of Tofino's program are caught by the tests of this folder.

``pytest -s`` shows by which.
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
SLOT, TAG, MEMBERS, MARKS, EXPONENT = "slot.p4", "tag.p4", "members.p4", "marks.p4", "exponent.p4"
LANE, LANES, SINGLE, OUTCOME, WORKERS = "lane.p4", "lanes.p4", "single.p4", "outcome.p4", "workers.p4"
PASSES, TREE = "passes.p4", "tree.p4"
NEWER = "held.epoch != (int<32>) epoch || (int<32>) netsum.chunk - held.chunk > 0"
SAME = "if (held.collective == found.collective || "
RANGE = " &&\n            (meta.admission.index & BEYOND_POOL) == 0"
CHILD, PARENT = "((meta.admission.worker_bit != 0 && (", "(meta.admission.worker_bit == 0 && ("

# Faults: the file, the original text, and its replacement.
FAULTS = {
    "the older chunk wins": (TAG, NEWER, NEWER.replace("> 0", "< 0")),
    "chunks are compared as they are, not modulo 2^32": (
        TAG,
        "(int<32>) netsum.chunk - held.chunk > 0",
        "netsum.chunk > (bit<32>) held.chunk",
    ),
    "the epoch is not compared": (TAG, NEWER, NEWER.partition(" || ")[2]),
    "a stale packet is taken": (
        MEMBERS,
        "found.held_chunk == (int<32>) netsum.chunk",
        "found.held_chunk == found.held_chunk",
    ),
    "a new tag keeps the bitmap": (
        MEMBERS,
        "held.seen = bits;",
        "held.seen = held.seen | bits;",
    ),
    "another collective sets its bit": (
        MEMBERS,
        SAME,
        f"held.seen = held.seen | bits; {SAME}",
    ),
    "a new tag keeps the collective": (MEMBERS, "held = found.collective;", "held = held;"),
    "a disputed slot is forgiven": (MEMBERS, "held = COLLECTIVE_DISPUTED;", "held = held;"),
    "a PROBE takes the tag": (TAG, "KIND_PROBE: look_at_tag();", "KIND_PROBE: take_tag();"),
    "a PROBE disputes the collective": (
        MEMBERS,
        "(KIND_PROBE, 0): look_at_collective();",
        "(KIND_PROBE, 0): compare_collective();",
    ),
    "a new tag keeps the marks": (MARKS, "held = mark;", "held = held | mark;"),
    "a new tag keeps the exponent": (
        EXPONENT,
        "held = netsum.exponent;",
        "held = max(held, netsum.exponent);",
    ),
    "a duplicate raises the exponent": (
        EXPONENT,
        "(_, _, _, _, 1, 0, _): read_exponent();",
        "(_, _, _, _, 1, 0, _): max_exponent();",
    ),
    "the full mask is not awaited": (SLOT, "if (after == full_mask) {", "if (after != 0) {"),
    "the job's range is not held": (SINGLE, "(meta.admission.indices_left != 0 || is_further_pass)", "true"),
    "the register's range is not held": (SINGLE, RANGE, ""),
    "a duplicate is added": (LANE, "LANE_AGAIN(1) ", ""),
    "the first lanes are added": (LANE, "value = lane;", "value = value |+| lane;"),
    "the sum wraps": (LANE, "value |+| lane", "value + lane"),
    "MAX starts from 0": (LANES, "            (_, 1, 0, OP_MAX): set_seed(SEED_LOWEST);\n", ""),
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
        "(false, _, _, OUTCOME_DUPLICATE_ANSWERED, _): add_in_second();",
        "(false, _, _, OUTCOME_DUPLICATE_ANSWERED, _): NoAction();",
    ),
    "what one asked for goes to all": (
        PASSES,
        "PASS_ADD, OUTCOME_DUPLICATE_ANSWERED, true): read_in_previous(PASS_READ_FOR_ONE);",
        "PASS_ADD, OUTCOME_DUPLICATE_ANSWERED, true): read_in_previous(PASS_READ_FOR_ALL);",
    ),
    "lanes that were added are sent along": (PASSES, "        hdr.lanes.setInvalid();\n", ""),
    "a pass reads the cells of the one before": (PASSES, "pass.number - 1;", "pass.number;"),
    "a STATUS has the bits of another epoch": (SLOT, "if (found.newer == 1) {", "if (false) {"),
    "BOR is AND": (LANE, "value = value | lane;", "value = value & lane;"),
}

# Faults in the slots of quorums.
QUORUM_FAULTS = {
    "a job needs no quorum": (
        SINGLE,
        "(hdr.netsum.quorum == 0 || job.quorum.workers != 0)",
        "(true)",
    ),
    "a slot is of a quorum or not": (SLOT, "{ hdr.netsum.quorum, ", "{ "),
    "a duplicate counts for the quorum": (
        MARKS,
        "(_, 1, _, 1, 0, 0): count_down();",
        "(_, 1, _, 1, 0, _): count_down();",
    ),
    "the late count on": (MARKS, "if (held > MISSING_NONE) {", "if (held > 0) {"),
    "a late contribution is a member": (
        WORKERS,
        "(_, 1, _, 1, 0, MISSING_NONE, _): read_members();",
        "(_, 1, _, 1, 0, MISSING_NONE, _): add_member();",
    ),
    "a late contribution raises the exponent": (
        EXPONENT,
        "(_, 1, MISSING_NONE, _, 1, 0, _): read_exponent();",
        "",
    ),
    "a new tag keeps the members": (
        WORKERS,
        "held = bits;",
        "held = held | bits;",
    ),
    "a STATUS has the late": (WORKERS, "(_, 1, 1, _, _, _, _): read_members();", ""),
    "all receive what a late one requested": (
        OUTCOME,
        "answer_status(OUTCOME_LATE)",
        "answer_status(OUTCOME_COMPLETED)",
    ),
    "a quorum of one is not complete": (
        OUTCOME,
        "1, 1, _, 1, _, MISSING_NONE, _, _, _, _, 1, _): answer_status(OUTCOME_COMPLETED);",
        "1, 1, _, 1, _, MISSING_NONE, _, _, _, _, 1, _): drop_after(OUTCOME_ADDED);",
    ),
    "a quorum is taken for twice as many": (SINGLE, "job.quorum.workers << 2;", "job.quorum.workers << 3;"),
    "a quorum chunk goes through all passes": (
        PASSES,
        "if (hdr.frame.netsum.quorum == 0)",
        "if (true)",
    ),
}

# Faults with workers that need a header-only RESULT.
HEADER_FAULTS = {
    "the flag is one of the collective": (SLOT, "{ hdr.netsum.quorum, ", "{ hdr.netsum.flags[2:2], "),
    "the first one's flag is not kept": (
        WORKERS,
        "(HAS_HEADER_ONLY, _, _, 1, 1, _, _): take_header();",
        "(HAS_HEADER_ONLY, _, _, 1, 1, _, _): take_none();",
    ),
    "a new tag keeps the flags": (WORKERS, "held = 0;", "held = held;"),
    "the first flags are not kept": (WORKERS, "held = held | bits;", "held = bits;"),
    "a duplicate takes its lanes back": (
        WORKERS,
        "(HAS_HEADER_ONLY, _, _, 1, 0, _, 0): add_header();",
        "(HAS_HEADER_ONLY, _, _, 1, 0, _, _): add_header();",
    ),
    "a duplicate with the flag is answered with lanes": (
        OUTCOME,
        "1, 1, _, _, _, _, HAS_HEADER_ONLY, _, _): answer_result_without_lanes(",
        "1, 1, _, _, _, _, HAS_HEADER_ONLY, _, _): answer_result(",
    ),
}

# Faults of a switch in a tree.
TREE_FAULTS = {
    "the flag goes up though a child needs the lanes": (
        TREE,
        "header_only == meta.admission.full_mask",
        "header_only != 0",
    ),
    "all children get the parent's lanes": (WORKERS, "(_, _, 1, _, _, _, _): read_headers();", ""),
    "a slot that is not full takes a RESULT": (
        MEMBERS,
        "if (held.collective == found.collective && held.seen == bits) {",
        "if (held.collective == found.collective) {",
    ),
    "a final slot takes another RESULT": (
        MEMBERS,
        "held.collective = held.collective + COLLECTIVE_FINAL;",
        "held.collective = held.collective;",
    ),
    "a child finishes a slot": (TREE, PARENT, "(true && ("),
    "the parent contributes": (TREE, CHILD, "((true && ("),
    "a new tag stays final": (
        MARKS,
        "held = mark;",
        "held = mark | (held & MARK_FINAL);",
    ),
    "a RESULT leaves the mark alone": (
        MARKS,
        "(KIND_RESULT, _, 1, _, _, _): take_marks();",
        "(KIND_RESULT, _, 1, _, _, _): read_marks();",
    ),
    "the exponent stays the children's": (
        EXPONENT,
        "(KIND_RESULT, _, _, 1, _, _, _): take_exponent();",
        "(KIND_RESULT, _, _, 1, _, _, _): read_exponent();",
    ),
    "the lanes stay the children's": (
        LANE,
        "(_, _, _, _, FROM_PARENT, _): write_or_read();",
        "(_, _, _, _, FROM_PARENT, _): NoAction();",
    ),
    "lanes that the slot did not take are written": (
        LANE,
        "(_, _, _, _, FROM_PARENT, 0): NoAction();",
        "",
    ),
    "every child is passed up again": (
        OUTCOME,
        "1, 1, 0 &&& MARK_FINAL, 1, _, true, _, _, _): send_up(",
        "1, 1, 0 &&& MARK_FINAL, _, _, true, _, _, _): send_up(",
    ),
    "a PROBE goes further than the contribution": (
        OUTCOME,
        "(true, true, 1, KIND_PROBE, _, _, 1, _, 1, _, 0, _, _, _, _, _): answer_status(OUTCOME_PROBED);",
        "",
    ),
    "a final slot passes a PROBE up": (
        OUTCOME,
        "KIND_PROBE, _, _, 1, _, 1, 0 &&& MARK_FINAL, _",
        "KIND_PROBE, _, _, 1, _, 1, _, _",
    ),
    "the parent's RESULT is not marked final": (MARKS, "held = mark | MARK_FINAL;", "held = mark;"),
    "the parent's lanes are taken for a child's": (TREE, "worker = FROM_PARENT;", "worker = 0;"),
    "the parent's STATUS is filled in here": (TREE, " && hdr.netsum.kind != KIND_STATUS", ""),
    "a job in a tree needs no quorum": (
        TREE,
        "(hdr.netsum.quorum == 0 || job.quorum.workers != 0)",
        "(true)",
    ),
    "a quorum in a tree is taken for twice as many": (
        TREE,
        "job.quorum.workers << 2;",
        "job.quorum.workers << 3;",
    ),
    "members of a quorum in a tree are not named": (
        TREE,
        " && hdr.netsum.kind != KIND_STATUS && names_members == 0",
        " && hdr.netsum.kind != KIND_STATUS",
    ),
    "levels are not counted": (TREE, "pass_status_on(1)", "pass_status_on(0)"),
    "the way back is not taken": (
        TREE,
        "hdr.ipv4.identification = way_on;",
        "hdr.ipv4.identification = way_here;",
    ),
}
ALL_FAULTS = FAULTS | QUORUM_FAULTS | HEADER_FAULTS | TREE_FAULTS


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
    engine = "tna-tree" if fault in TREE_FAULTS else "tna-passes" if name == PASSES else "tna-logic"
    program = engine.replace("-", "_")
    translated = [sys.executable, str(copy / "tna_logic" / "translate.py"), program]
    subprocess.run(translated, check=True, timeout=600)
    tests = [
        str(path)
        for path in sorted(
            copy.glob("test_*.py"),
            key=lambda path: path.stem not in ("test_quorum", "test_header_only", "test_tree"),
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
