"""`netsum testbed up --program`: a program of the user's own on the switches, with entries, and again after a restart."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netsum_common.p4rt import p4runtime_pb2
from tests.raw_p4runtime import RawClient
from topologies.mininet_testbed import missing_for_mininet

PROGRAMS = Path(__file__).parents[1] / "programs"
DEADLINE_S = 500.0
ENTRY = {"table": "lpm_table", "match": {"a": ["10.0.0.0", 8]}, "action_name": "forward"}


def netsum(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", "from netsum.cli import main; main()", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")}
    environment |= {"COLUMNS": "80"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def entries(folder: Path, entry: dict[str, Any]) -> str:
    path = folder / "entries.json"
    path.write_text(json.dumps({"table_entries": [entry]}))
    return str(path)


def test_wrong_files_are_reported_before_anything_starts(tmp_path: Path) -> None:
    program = str(PROGRAMS / "entities.json")
    for words, said in (
        (["--program", "none.json"], "cannot read the program none.json: No such file or directory"),
        (["--program", program, "--entries", entries(tmp_path, ENTRY | {"table": "lpm"})],
         'table_entries[0].table: expected a table of the program (ProbeIngress.'),
        (["--program", f"s3={program}"], "there is no switch 's3': expected s1"),
        (["--program", program, "--lanes", "64"], "--lanes applies to netsum's program, but star-2 runs your own: leave it out"),
    ):  # fmt: skip
        done = netsum("testbed", "up", "star-2", *words, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("netsum: ")
        assert said in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.root
@pytest.mark.timeout(600)
def test_a_program_and_its_entries_outlast_a_restart(tmp_path: Path) -> None:
    if (lacking := missing_for_mininet()) is not None:
        pytest.skip(lacking)
    name = f"own-{os.getpid()}"
    files = ["--program", str(PROGRAMS / "entities.json"), "--entries"]
    written = entries(tmp_path, ENTRY | {"action_params": {"port": 2}})
    up = netsum("testbed", "up", "star-2", "--testbed", name, *files, written, folder=tmp_path)
    assert up.returncode == 0, up.stderr
    try:
        assert up.stdout.startswith(f"{name} (star-2, embedded, programs of your own): up\n")
        assert "controller: none\nyour own programs: s1, in runs/" in up.stdout
        Path(written).unlink()
        state = json.loads(netsum("testbed", "status", "--testbed", name, "--json", folder=tmp_path).stdout)
        address = state["switches"]["s1"]["p4runtime"]
        assert held(address) == 1
        assert netsum("testbed", "restart", "--testbed", name, "s1", folder=tmp_path).returncode == 0
        assert held(address) == 1
    finally:
        netsum("testbed", "down", "--testbed", name, folder=tmp_path)


def held(address: str) -> int:
    """How many entries the tables of the switch hold that a controller wrote."""
    client = RawClient(1, address, (0, 1))
    request = p4runtime_pb2.ReadRequest(device_id=1)
    request.entities.add().table_entry.SetInParent()
    found = [entity.table_entry for answer in client.stub.Read(request) for entity in answer.entities]
    client.tear_down()
    return sum(not each.is_const for each in found)
