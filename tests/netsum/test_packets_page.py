"""docs/packets.md: every line of it is run, on loopback; the last section on a testbed, where there is root."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from topologies.run_folder import find_testbed

pytest.importorskip("scapy", reason="needs scapy: pip install 'netsum[packets]'")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "packets.md"
DEADLINE_S = 800.0
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")},
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def free_ports() -> tuple[int, int]:
    """A UDP port that is free with the one above it, which is free in TCP too; and another TCP port."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
            socket.socket() as api,
            socket.socket() as p4runtime,
        ):
            first.bind(("127.0.0.1", 0))
            base = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", base + 1))
                api.bind(("127.0.0.1", base + 1))
            except OSError:
                continue
            p4runtime.bind(("127.0.0.1", 0))
            return base, p4runtime.getsockname()[1]


def doctest(page: Path, text: str) -> None:
    page.write_text(text)
    command = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE", str(page)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=page.parent,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    """The page, with ports that are free here, and what its first commands start."""
    base, p4runtime = free_ports()
    text = PAGE.read_text(encoding="utf-8")
    for written, port in (("28275", base), ("28276", base + 1), ("9559", p4runtime)):
        text = text.replace(written, str(port))
    (tmp_path / "network.toml").write_text(blocks(text, "toml")[0])
    places = (
        ["--udp-base", str(base), "--p4runtime", f"127.0.0.1:{p4runtime}"],
        ["--listen", f"127.0.0.1:{base + 1}"],
    )
    with ExitStack() as stack:
        for line, options in zip(blocks(text, "sh")[0].splitlines(), places, strict=True):
            started = stack.enter_context(
                subprocess.Popen(
                    [*line.removesuffix(" &").split(), *options],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=tmp_path,
                    env=ENVIRONMENT,
                )
            )
            stack.callback(started.terminate)
            assert started.stdout is not None
            assert started.stdout.readline().startswith("ready: ")
        yield text


@pytest.mark.timeout(1800)
def test_every_line_on_loopback(page: str, tmp_path: Path) -> None:
    doctest(tmp_path / "page.txt", "\n".join(blocks(page, "python")))
    lacking = [program for program in ("tshark", "mergecap") if shutil.which(program) is None]
    if lacking:
        pytest.skip(f"needs {' and '.join(lacking)}, for the lines on the capture")
    merge, *looks = blocks(page, "sh")[1].splitlines()
    assert len(looks) == 3
    said = [
        subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd=tmp_path,
            env=ENVIRONMENT,
            check=True,
        ).stdout
        for line in (merge, *looks)
    ]
    assert [said[1].count(kind) for kind in ("CONTRIBUTE", "PROBE", "STATUS", "RESULT")] == [4, 1, 1, 3]
    assert said[2].count("misses worker 1") == 1
    assert said[3].split() == ["0", "0"]


@pytest.mark.root
@pytest.mark.timeout(1800)
def test_every_line_on_a_testbed(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mn") is None:
        pytest.skip("needs root and Mininet")
    page = tmp_path / "page.txt"
    page.write_text(blocks(PAGE.read_text(encoding="utf-8"), "pycon")[0])
    netsum = [sys.executable, "-c", "from netsum.cli import main; main()", "testbed"]
    name = f"packets-{os.getpid()}"
    subprocess.run(
        [*netsum, "up", "star-2", "--pcap", "--testbed", name], cwd=tmp_path, env=ENVIRONMENT, check=True
    )
    try:
        command = [sys.executable, "-m", "doctest", "-o", "NORMALIZE_WHITESPACE", str(page)]
        done = subprocess.run(
            [*netsum, "exec", "--testbed", name, "h1", *command],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        pcaps = Path(find_testbed(name).state["folder"]) / "pcaps"
        assert {"s1-eth1_in.pcap", "s1-eth1_out.pcap"} <= {path.name for path in pcaps.iterdir()}
    finally:
        subprocess.run([*netsum, "down", "--testbed", name], cwd=tmp_path, env=ENVIRONMENT, check=True)
