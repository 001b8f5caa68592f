"""`netsum controller serve` tells in a sentence what keeps it from serving."""

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
        ([], "which switches? Give --testbed RUN_FOLDER or --config FILE"),
        (["--config", "none.toml"], "cannot read none.toml: No such file"),
        (["--testbed", "none"], "none is no testbed's run folder"),
        (["--config", "net.toml", "--program", "x.conf"], "--program and --p4info go together"),
        (
            ["--config", "net.toml", "--program", "x.conf", "--p4info", "x.txt", "--lanes", "64"],
            "give only one of them",
        ),
        (["--config", "net.toml", "--program", "x.conf", "--p4info", "x.txt"], "cannot read x.conf: there is no such file"),
        (["--config", "net.toml", "--slots", "3"], "must be a power of two, at most the 1024 of the program, not 3"),
        (["--config", "net.toml", "--slots", "2048"], "at most the 1024 of the program, not 2048"),
        (["--config", "net.toml", "--listen", "0.0.0.0:0"], "the job API would be open to other machines on 0.0.0.0"),
        (["--config", "net.toml", "--listen", "nowhere"], "expected an address such as 127.0.0.1:28276"),
        (["--config", "net.toml", "--metrics", "9464"], "--metrics: expected an address such as 127.0.0.1:9464"),
        (
            ["--config", "net.toml", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"],
            "the metrics would be open to other machines on 0.0.0.0: serve them on 127.0.0.1, or give --allow-remote",
        ),
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
