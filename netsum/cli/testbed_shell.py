"""The prompt on a running testbed: pings between all hosts, iperf, commands on nodes, and links that change."""

import cmd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

from host_agent.words import plural
from netsum.cli.testbed_links import CHANGES, change_from_words
from netsum.cli.testbed_state import condition, node_environment, show
from netsum.command_errors import CommandError
from netsum.terminal import ProgressRows, echo
from topologies.children import TestbedError
from topologies.namespaces import inside_of
from topologies.run_folder import RunningTestbed, find_testbed

PING_TIMEOUT_S = 2
IPERF_SECONDS = 5
IPERF_PORT = 5201  # Another than that of a testbed's cross traffic.
_START_S = 10.0

USAGE: Final = {
    "nodes": "nodes",
    "status": "status",
    "pingall": "pingall",
    "iperf": "iperf [HOST HOST [SECONDS]]",
    "link": "link NODE NODE CHANGE…",
    "exit": "exit",
    "help": "help [COMMAND]",
}
"""How each command is written."""


class TestbedShell(cmd.Cmd):
    """Reads commands from a script, or without one from a prompt on the terminal, as Mininet's does."""

    __test__ = False  # The name begins with Test, but pytest must not collect the class.

    def __init__(self, testbed: RunningTestbed, script: IO[str] | None = None) -> None:
        super().__init__(stdin=script)
        self.prompt = f"{testbed.name}> " if script is None else ""
        self.use_rawinput = script is None
        self.failed = False
        self._name = testbed.name
        self._testbed = testbed

    def precmd(self, line: str) -> str:
        """Skip comments; look at the testbed anew, for others may have changed it."""
        self._testbed = find_testbed(self._name)
        return "exit" if line == "EOF" else line.partition("#")[0].strip()

    def onecmd(self, line: str) -> bool:
        """Run a line; if it fails, print why, and keep the prompt."""
        try:
            return super().onecmd(line)
        except (CommandError, TestbedError, ValueError) as fault:
            self.failed = True
            echo(f"{fault}")
        except KeyboardInterrupt:
            self.failed = True
            print()
        return False

    def emptyline(self) -> bool:
        """Do nothing."""
        return False

    def default(self, line: str) -> None:
        """Run a command on a node: NODE COMMAND…; names of hosts in it are replaced by their addresses."""
        node, *command = shlex.split(line)
        nodes = self._nodes()
        if node not in nodes:
            raise CommandError(
                f"there is no command and no node {node!r}: `help` lists the commands, `nodes` the nodes"
            )
        if not command:
            raise CommandError(f"{node}: expected a command, such as `{node} ip address`")
        self._run(node, [self._address(word) for word in command])

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """Offer commands and nodes."""
        return [
            *super().completenames(text, *ignored),
            *(each for each in self._nodes() if each.startswith(text)),
        ]

    def completedefault(self, text: str, *ignored: object) -> list[str]:
        """Offer nodes."""
        del ignored
        return [each for each in self._nodes() if each.startswith(text)]

    def do_nodes(self, line: str) -> None:
        """List hosts and switches with their addresses."""
        del line
        rows = ProgressRows("node", "address")
        for name, node in self._nodes().items():
            rows.add(name, node["ip"])
        rows.print()

    def do_status(self, line: str) -> None:
        """Show the testbed, its links and what does not run."""
        del line
        show(self._testbed, condition(self._testbed))

    def do_pingall(self, line: str) -> None:
        """Ping from every host to every other, once."""
        del line
        hosts = self._testbed.state["hosts"]
        answered = 0
        with ThreadPoolExecutor(len(hosts)) as pool:
            for source, reached in zip(hosts, pool.map(self._reached_from, hosts), strict=True):
                answered += sum(reached.values())
                echo(f"{source} -> {' '.join(name if ok else 'X' for name, ok in reached.items())}")
        pings = len(hosts) * (len(hosts) - 1)
        self.failed = self.failed or answered < pings
        lost = 0 if not pings else 100 * (pings - answered) / pings
        echo(f"{answered} of {plural(pings, 'ping')} answered, {lost:.3g} % lost")

    def do_iperf(self, line: str) -> None:
        """Measure TCP between two hosts; without hosts, from the first to the last."""
        words = line.split()
        hosts = list(self._testbed.state["hosts"])
        source, target = words[:2] if len(words) >= 2 else (hosts[0], hosts[-1])
        seconds = words[2] if len(words) > 2 else str(IPERF_SECONDS)
        if unknown := [each for each in (source, target) if each not in hosts]:
            raise CommandError(f"there is no host {unknown[0]!r}: expected {', '.join(hosts)}")
        if not (seconds.isascii() and seconds.isdigit() and 1 <= int(seconds) <= 3600):
            raise CommandError(f"expected 1 to 3600 seconds, not {seconds!r}")
        if shutil.which("iperf") is None:
            raise CommandError("iperf is not installed: `apt-get install iperf`")
        server = subprocess.Popen(
            self._command(target, ["iperf", "-s", "-p", str(IPERF_PORT)]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=node_environment(self._testbed),
        )
        try:
            assert server.stdout is not None
            while "listening" not in (heard := server.stdout.readline()):
                if not heard:
                    raise CommandError(
                        f"iperf does not listen on {target}: it ended with status {server.wait()}"
                    )
            client = ["iperf", "-c", self._address(target), "-p", str(IPERF_PORT), "-t", seconds]
            said = subprocess.run(
                self._command(source, client),
                capture_output=True,
                text=True,
                check=False,
                timeout=int(seconds) + _START_S * 3,
                env=node_environment(self._testbed),
            )
        except subprocess.TimeoutExpired:
            raise CommandError(f"iperf from {source} to {target} did not end: is a link down?") from None
        finally:
            server.kill()
            server.communicate()
        rate = re.findall(r"([\d.]+ [KMG]?bits/sec)", said.stdout)
        if not rate:
            raise CommandError(
                f"iperf from {source} to {target} failed: "
                + (" ".join((said.stderr or said.stdout).split()) or f"status {said.returncode}")
            )
        echo(f"{source} -> {target}: {rate[-1]} (TCP, {seconds} s)")

    def do_link(self, line: str) -> None:
        """Change a link while it runs: up, down, rate=10mbit, loss=1, latency=5ms, queue=60."""
        words = shlex.split(line)
        if len(words) < 3:
            raise CommandError(
                f"expected two nodes, and up, down or {', '.join(f'{each}=…' for each in CHANGES)}"
            )
        echo(change_from_words(self._testbed, words[0], words[1], words[2:]))

    def do_exit(self, line: str) -> bool:
        """Leave the prompt; the testbed stays up. Ctrl-D does the same."""
        del line
        if self.use_rawinput and sys.stdin.isatty():
            print()
        return True

    def do_help(self, arg: str) -> None:
        """List the commands, or explain one."""
        if arg and arg not in USAGE:
            raise CommandError(f"there is no command {arg!r}: expected {', '.join(USAGE)}")
        rows = ProgressRows("command", "~what it does")
        for name in [arg] if arg else USAGE:
            rows.add(USAGE[name], (getattr(self, f"do_{name}").__doc__ or "").strip())
        if not arg:
            rows.add("NODE COMMAND…", "Run a command on a host or switch, such as `h1 ping -c 3 h2`.")
        rows.print()

    def _nodes(self) -> dict[str, dict[str, str]]:
        return {**self._testbed.state["hosts"], **self._testbed.state["switches"]}

    def _address(self, word: str) -> str:
        """Return the address of a node, and any other word as it is."""
        nodes = self._nodes()
        return nodes[word]["ip"] if word in nodes else word

    def _command(self, node: str, command: Sequence[str]) -> list[str]:
        return [*inside_of(self._testbed.namespace_pid(node)), *command]

    def _run(self, node: str, command: Sequence[str]) -> None:
        sys.stdout.flush()
        done = subprocess.run(
            self._command(node, command),
            stdin=None if self.use_rawinput else subprocess.DEVNULL,
            env=node_environment(self._testbed),
            check=False,
        )
        self.failed = self.failed or done.returncode != 0

    def _reached_from(self, source: str) -> dict[str, bool]:
        return {
            target: self._ping(source, target) for target in self._testbed.state["hosts"] if target != source
        }

    def _ping(self, source: str, target: str) -> bool:
        done = subprocess.run(
            self._command(
                source, ["ping", "-n", "-c", "1", "-W", str(PING_TIMEOUT_S), self._address(target)]
            ),
            capture_output=True,
            check=False,
            env=node_environment(self._testbed),
        )
        return done.returncode == 0
