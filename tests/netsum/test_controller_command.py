"""`netsum controller serve` reports what keeps it from serving."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netsum.cli.app import app

NETWORK = """
[[switch]]
name = "s1"
p4runtime = "127.0.0.1:1"
ip = "127.0.0.1"
mac = "02:00:00:00:00:fe"
"""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "no switches are given: expected either --testbed NAME or --config FILE"),
        (["--config", "none.toml"], "cannot read none.toml: No such file"),
        (["--config", "net.toml", "--program", "x.conf"], "--program and --p4info must be given together"),
        (
            ["--config", "net.toml", "--program", "x.conf", "--p4info", "x.txt", "--lanes", "64"],
            "give only one of them",
        ),
        (["--config", "net.toml", "--program", "x.conf", "--p4info", "x.txt"], "cannot read x.conf: there is no such file"),
        (["--config", "net.toml", "--slots", "3"], "must be a power of two, at most the 4096 of the program, not 3"),
        (["--config", "net.toml", "--slots", "8192"], "at most the 4096 of the program, not 8192"),
        (["--config", "net.toml", "--listen", "0.0.0.0:0"], "the job API would be open to other machines on 0.0.0.0"),
        (["--config", "net.toml", "--listen", "nowhere"], "expected an address such as 127.0.0.1:28276"),
        (["--config", "net.toml", "--metrics", "9464"], "--http: expected an address such as 127.0.0.1:8080, not '9464'"),
        (["--config", "net.toml", "--http", "nowhere:99999"], "--http: expected an address such as 127.0.0.1:8080"),
        (
            ["--config", "net.toml", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"],
            "the window and the metrics would be open to other machines on 0.0.0.0: give a certificate (--tls-cert, --tls-key) "
            "and --http-token, serve them on 127.0.0.1, or give --allow-remote",
        ),
        (["--config", "net.toml", "--http-token", "short"], "--http-token: expected at least 16 letters, digits"),
        (["--config", "net.toml", "--tls-cert", "c.pem"], "a certificate and its private key belong together"),
        (["--config", "net.toml", "--state", "no/such/file"], "--state: expected a file in a folder that exists"),
        (["--config", "net.toml", "--state", "."], "--state: expected a file in a folder that exists, not ."),
    ],
)  # fmt: skip
def test_what_keeps_it_from_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.toml").write_text(NETWORK)
    done = CliRunner().invoke(app, ["controller", "serve", *options], prog_name="netsum")
    assert done.exit_code == 2
    said = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert len(said) == 1, done.stderr
    assert said[0].startswith("netsum: ")
    assert sentence in said[0]
    assert [path.name for path in tmp_path.iterdir()] == ["net.toml"]  # No state, no lock.


COMMAND = [sys.executable, "-P", "-c", "from netsum.cli import main; main()", "controller", "serve"]


def test_all_that_it_writes_is_json_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(NETWORK)
    command = [
        *COMMAND,
        "--config",
        "net.toml",
        "--listen",
        f"unix:{tmp_path}/c.sock",
        "--log-format",
        "json",
    ]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["level"], first["message"]) == ("INFO", f"job API on unix:{tmp_path}/c.sock")
        # The switch of this network does not run: its connection says so in the log.
        while (found := json.loads(process.stdout.readline())).get("switch") != "s1":
            pass
        assert found["logger"] == "controller.service.events"
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert second.returncode == 1
        refused = json.loads(second.stderr.splitlines()[-1])
        assert refused["level"] == "ERROR"
        assert "another controller" in refused["message"]
        process.terminate()
        assert all(json.loads(line) for line in process.stdout)


def test_a_variable_asks_for_json_as_the_option_does(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(NETWORK)
    environment = {**os.environ, "NETSUM_LOG_FORMAT": "json"}
    command = [*COMMAND, "--config", "net.toml", "--state", "no/such/file"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    refused = json.loads(done.stderr)
    assert (done.returncode, refused["level"]) == (2, "ERROR")
    assert refused["message"].startswith("--state: expected a file in a folder that exists")


@pytest.mark.parametrize("network", ["10.0.1.0/33", "10.0.1.5/24", "rack"])
def test_an_aggregators_workers_are_a_network(network: str) -> None:
    """Said before a switch is started and a controller is asked."""
    options = [
        "aggregator",
        "serve",
        "--controller",
        "127.0.0.1:1",
        "--ip",
        "127.0.0.1",
        "--workers",
        network,
    ]
    done = CliRunner().invoke(app, options, prog_name="netsum")
    assert done.exit_code == 2
    assert f"--workers: expected an IPv4 network such as 10.0.1.0/24, not '{network}'" in done.stderr
