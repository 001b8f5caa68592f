"""The container files of examples/deploy: their parts fit together, and the commands of compose.yml train without containers."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from netsum.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
CONTAINERFILES = sorted(DEPLOY.glob("Containerfile*"))
SERVICES = {"switch", "controller", "trainer-0", "trainer-1", "prometheus", "grafana"}


def compose() -> Any:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    return yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))


def instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
    return [(line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.name)
def test_a_containerfile_copies_what_is_there_from_stages_that_it_has(path: Path) -> None:
    stages: set[str] = set()
    for name, rest in instructions(path):
        assert name in {"ARG", "FROM", "COPY", "ENV", "RUN", "WORKDIR", "ENTRYPOINT", "CMD"}
        if name == "FROM":
            base, *named = rest.split(" AS ")
            assert base == "${BASE}" or base in stages
            stages.update(named)
        if name == "COPY":
            *options, source, _ = rest.split()
            assert not options or options[0].removeprefix("--from=") in stages
            assert options or (ROOT / source).exists()
        if name == "RUN":  # The shell of the base can read it.
            subprocess.run(["sh", "-n", "-c", rest], check=True)


def test_the_services_of_compose_fit_the_files_beside_them() -> None:
    read = compose()
    assert read["services"].keys() == SERVICES
    targets = re.findall(r" AS (\w+)", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    for service in read["services"].values():
        for mounted in service.get("volumes", []):
            source = mounted.split(":")[0]
            assert (DEPLOY / source).is_file() or source in read["volumes"]
        if "build" in service:
            assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
            assert service["build"]["target"] in targets
        for used in service.get("configs", []):
            assert "http://127.0.0.1:9090" in read["configs"][used["source"]]["content"]
        if service["image"] == "netsum":
            group, name, *words = service["command"]
            command: Any = typer.main.get_command(app)
            known = {opt for each in command.commands[group].commands[name].params for opt in each.opts}
            assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.root
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a network namespace")
def test_the_commands_of_compose_train(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    services = compose()["services"]
    netsum = f"{shlex.quote(sys.executable)} -P -c 'from netsum.cli import main; main()'"

    def line(name: str) -> str:
        words = shlex.join(services[name]["command"])
        words = words.replace("/etc/netsum", str(DEPLOY)).replace("/var/lib/netsum", str(tmp_path))
        return f"{netsum} {words} >{tmp_path}/{name}.log 2>&1 &"

    def trainer(name: str) -> str:
        given = " ".join(f"{key}={value}" for key, value in services[name]["environment"].items())
        example = f"{shlex.quote(sys.executable)} {ROOT}/examples/digits_cnn.py --backend netsum --steps 10"
        return f"{given} {example} >{tmp_path}/{name}.log 2>&1 &"

    # As in containers nothing waits for the controller: a trainer that starts too early is started again.
    script = "\n".join(
        [
            "ip link set lo up",
            line("switch"),
            line("controller"),
            f"until grep -q ready: {tmp_path}/controller.log; do sleep 0.1; done",
            trainer("trainer-0"),
            "first=$!",
            trainer("trainer-1"),
            "wait $first && wait $! && status=0 || status=1",
            "kill %1 %2; wait; exit $status",
        ]
    )
    done = subprocess.run(
        ["unshare", "--net", "bash", "-mc", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    logs = {
        name: (tmp_path / f"{name}.log").read_text()
        for name in services
        if "image" in services[name] and (tmp_path / f"{name}.log").exists()
    }
    assert done.returncode == 0, (done.stderr, logs)
    assert "loss" in logs["trainer-0"]
