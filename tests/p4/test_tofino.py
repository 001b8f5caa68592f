"""The program for Tofino: its compiler, its reports, its P4Info."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from controller.entries import JOB_PARENT, TREE_COUNTERS
from controller.p4info import ProgramNames, read_p4info
from controller.program import require_control_surface
from netsum_common.targets import TARGETS, read_capabilities, target_of

ROOT = Path(__file__).resolve().parents[2]
NO_COMPILER = pytest.mark.skipif(
    shutil.which("p4c-barefoot") is None, reason="p4c's Tofino back end (p4c-barefoot) is not on PATH"
)
LONG = pytest.mark.skipif("NETSUM_LONG_TESTS" not in os.environ, reason="long; set NETSUM_LONG_TESTS=1")
FEWEST_LANES = 8
SHIPPED = (
    "netsum_tofino_32",
    "netsum_tofino2_64",
    "netsum_tofino_64",
    "netsum_tofino_256",
    "netsum_tofino2_256",
    "netsum_tofino_tree_16",
    "netsum_tofino2_tree_32",
)

ASSEMBLY = """
version: 1.0.1
parser ingress: start
  start:
    0x**:
      next: parse_ethernet
  parse_ethernet:
    match: [ half ]
    0x0800:
      next: parse_ipv4
  parse_ipv4:
    match: [ byte0 ]
deparser ingress:
  match: not one of the parser's
stage 0 ingress:
  exact_match admission_worker_admission 0:
    always_run: true
    p4: { name: NetsumIngress.admission.worker_admission, size: 8192 }
    actions:
      p4: { name: not.a.table }
  ternary_match tbl_target110 1:
    p4: { name: tbl_target110, hidden: true }
  gateway cond-57 2:
    name: cond-57
stage 0 egress:
  hash_action tbl_counters33 0:
    p4: { name: tbl_counters33, hidden: true }
  hash_action tbl_counters35 1:
    p4: { name: tbl_counters35, hidden: true }
stage 3 ingress:
  ternary_match slot_lanes_lane_31_lane_step 0:
    p4: { name: NetsumIngress.slot.lanes.lane_31.lane_step, size: 512 }
  ternary_match slot_lanes_lane_30_lane_step 1:
    p4: { name: NetsumIngress.slot.lanes.lane_30.lane_step, size: 512 }
"""


@pytest.fixture(scope="module")
def tofino() -> ModuleType:
    sys.path.insert(0, str(ROOT / "p4"))
    try:
        spec = importlib.util.spec_from_file_location("p4_tofino", ROOT / "p4" / "tofino.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["p4_tofino"] = module  # dataclasses look it up
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(ROOT / "p4"))


def test_parser_that_matches_nothing_is_noticed(tofino: ModuleType) -> None:
    assert tofino.parser_matches(ASSEMBLY) == 2
    assert tofino.parser_matches(ASSEMBLY.replace("    match: [", "    other: [")) == 0


def test_without_the_compiler_the_error_says_what_to_do(tmp_path: Path) -> None:
    script = str(ROOT / "p4" / "tofino.py")
    done = subprocess.run(
        [sys.executable, script, "--out", str(tmp_path)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "p4c-barefoot" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_stamp_is_that_of_the_sources(tofino: ModuleType) -> None:
    if not tofino.STAMP.exists():
        pytest.skip("Tofino's programs have not been compiled: run `make p4-tofino`")
    tofino.check_stamp()
    stamp = json.loads(tofino.STAMP.read_text())
    assert stamp["p4info"].keys() == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_controller_can_drive_the_program(tofino: ModuleType, name: str) -> None:
    """Tables, keys, actions, parameters and counters are those of the program for v1model, lanes and slots are found."""
    (variant,) = (one for one in tofino.shipped() if one.name == name)
    if not tofino.p4info_path(variant).exists():
        pytest.skip(
            "compiled by `make p4-tofino`; tests/dataplane/tna_logic has the same controls for every compiler"
        )
    names = ProgramNames(read_p4info(tofino.p4info_path(variant)))
    require_control_surface(names, variant.name)
    can = read_capabilities(tofino.p4info_path(variant))
    assert target_of(can) is TARGETS["tofino"]
    assert (JOB_PARENT in names.tables) == variant.tree == can.trees
    assert not names.missing({}, TREE_COUNTERS if variant.tree else ())
    assert (can.lanes, can.passes, can.slots) == (variant.lanes, variant.passes, 1024)


@pytest.mark.p4c
@pytest.mark.slow
@pytest.mark.parametrize("tree", [0, 1])
@pytest.mark.parametrize("chip", [1, 2])
def test_program_is_accepted_by_the_front_end(chip: int, tree: int) -> None:
    """All that can be asked of a p4c without the back end, as long as it has TNA's definitions."""
    checker = shutil.which("p4test")
    if checker is None:
        pytest.skip("p4test is not on PATH")
    definitions = Path(checker).resolve().parents[1] / "share" / "p4c" / "p4include"
    if not (definitions / "tna.p4").exists():
        pytest.skip(f"p4c's definitions of TNA are not in {definitions}")
    options = [
        "--std",
        "p4-16",
        "-I",
        str(definitions),
        f"-D__TARGET_TOFINO__={chip}",
        "-D",
        f"LANES={FEWEST_LANES}",
        "-D",
        f"TREE={tree}",
    ]
    command = [checker, *options, str(ROOT / "p4" / "tna" / "netsum.p4")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.p4c
@pytest.mark.slow
@NO_COMPILER
@LONG
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("target", ["tofino", "tofino2"])
def test_few_lanes_compile(tofino: ModuleType, tmp_path: Path, target: str, tree: bool) -> None:
    tofino.compile_into(tofino.Variant(target, FEWEST_LANES, tree=tree), tmp_path)
    assert list(tmp_path.rglob(f"{target}.bin"))
    assert tofino.parser_matches(tofino.assembly(tmp_path)) > 5


@pytest.mark.p4c
@pytest.mark.slow
@NO_COMPILER
@LONG
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SHIPPED)
def test_all_lanes_compile_to_the_p4info_of_the_stamp(tofino: ModuleType, tmp_path: Path, name: str) -> None:
    (variant,) = (one for one in tofino.shipped() if one.name == name)
    tofino.compile_into(variant, tmp_path)
    assert list(tmp_path.rglob(f"{variant.target}.bin"))
    assert tofino.p4info_hash(variant, tmp_path) == json.loads(tofino.STAMP.read_text())["p4info"][name]


@pytest.mark.parametrize("jobs", ["0", "-1"])
def test_no_jobs_are_an_error(
    tofino: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["tofino.py", "--jobs", jobs])
    with pytest.raises(SystemExit) as ended:
        tofino.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: --jobs: expected 1 at least, not {jobs}\n")
