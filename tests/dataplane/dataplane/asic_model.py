"""Tofino's ASIC model as a target: the harness that is among the model's sources, spoken to over its standard input.

The harness (`simple_test_harness` of `pkgsrc/tofino-model`, built as `tofino_test_harness`) loads the compiler's output, writes
table entries by their names in the program, and puts packets in. It has no command that deletes an entry and none for
multicast: for substitutes, see `delete` and `tofino_memory`.
"""

import os
import re
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from netsum_common.targets import TARGETS, Capabilities, read_capabilities

from . import tofino_memory
from .frames import without_unread_lanes
from .target import BUILD, CPU_PORT, PORTS, Entry, Packet
from .tofino_memory import Layout, MulticastGroups, clear_tcam_row, connect_ports

DEADLINE_S = 300.0
PRIORITIES_A_LENGTH = 16
ROUND_S = 0.03
"""How long the model may take from one pass to the next; `wait` does not know of packets in between."""

# Writes in pipe 0, as the harness prints them (-T table:4).
SRAM_READ = re.compile(r"read_sram\(0, (\d+):(\d+):(\d+), [^)]*\) = ([0-9a-f]{32})")
SRAM_WRITE = re.compile(r"write_sram\(0, (\d+):(\d+):(\d+), [^)]*, ([0-9a-f]{32})\)")
TCAM_WRITE = re.compile(r"write_tcam\(0, (\d+):(\d+):(\d+), ")
COUNTER = re.compile(r"^counter \.(\w+)\((virtual|physical) \d+\):.* packets=(\d+)")
COMPLAINT = re.compile(r"^<stdin>:\d+: (.*)")

Place = tuple[int, int, int]
"""Stage, memory of the stage, row."""


class Chip(NamedTuple):
    """A chip whose model there is."""

    name: str
    """As p4c calls it."""
    harness: str
    """The environment variable that names the model's harness."""
    built_as: str
    lanes_a_pass: int
    first_port: int
    """The device port of the tests' port 0, in pipe 0 like the further ones."""
    cpu_port: int
    recirculation_port: int
    layout: Layout


TOFINO = Chip("tofino", "NETSUM_TOFINO_MODEL", "tofino_test_harness", 32, 0, 320, 68, tofino_memory.TOFINO)
TOFINO2 = Chip("tofino2", "NETSUM_TOFINO2_MODEL", "jbay_test_harness", 64, 8, 0, 6, tofino_memory.TOFINO2)


def program_folder(lanes: int, tree: bool = False, chip: Chip = TOFINO) -> Path:
    """Name the folder with the compiled program."""
    return BUILD / "tofino" / f"netsum_{chip.name}_{'tree_' if tree else ''}{lanes}"


def why_not(lanes: int, tree: bool = False, chip: Chip = TOFINO) -> str | None:
    """Name the missing parts of the ASIC model here."""
    harness, folder = os.environ.get(chip.harness), program_folder(lanes, tree, chip)
    if harness is None:
        return f"{chip.harness} does not name the ASIC model's {chip.built_as} (docs/tofino-log.md)"
    if shutil.which(harness) is None:
        return f"{chip.harness} names {harness}, which is no program"
    if not (folder / "pipe" / f"{chip.name}.bin").exists():
        return f"the program for Tofino is not compiled: run `make p4-tofino` ({folder})"
    return None


class Harness:
    """The harness, running. `-r`: it must initialise ports and tables once, not with each binary it loads."""

    def __init__(self, program: str, folder: Path) -> None:
        self._observed = folder / "observed"
        self._process = subprocess.Popen(
            [program, "-r", "-T", "table:4", "--observation-log", self._observed, "-"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._read = 0
        self._said = b""
        self._commands = 0
        self._busy = threading.Lock()  # Packets and P4Runtime calls come from threads of their own.

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def run(self, commands: Iterable[str]) -> list[str]:
        """Have commands run and return the lines that were said meanwhile.

        Raises
        ------
        AssertionError
            It complains, it ended, or it does not get done.
        """
        with self._busy:
            return self._run(commands)

    def _run(self, commands: Iterable[str]) -> list[str]:
        self._commands += 1
        mark = f"done-{self._commands}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        text = "".join(f"{command}\n" for command in (*commands, mark))
        sending, deadline = memoryview(text.encode()), time.monotonic() + DEADLINE_S
        into, out = self._process.stdin.fileno(), self._process.stdout.fileno()
        ending = f"Unknown command {mark}\n".encode()
        while ending not in self._said:
            readable, writable, _ = select.select([out], [into] if sending else [], [], 1.0)
            if writable:
                sending = sending[os.write(into, sending[: select.PIPE_BUF]) :]
            if readable:
                chunk = os.read(out, 1 << 16)
                if not chunk:
                    last = self._said.decode(errors="replace").splitlines()[-3:]
                    raise AssertionError(
                        f"the ASIC model's harness ended with status {self._process.wait()}: {last}"
                    )
                self._said += chunk
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"the ASIC model's harness did not get done within {DEADLINE_S:g} s: {text[:200]}"
                )
        said, _, self._said = self._said.partition(ending)
        lines = said.decode(errors="replace").splitlines()
        wrong = [found[1] for found in map(COMPLAINT.match, lines[:-1]) if found]
        assert not wrong, f"the ASIC model's harness says: {'; '.join(wrong)}, of {text[:200]}"
        return lines

    def left(self) -> list[Packet]:
        """Return the packets that left since the last call."""
        with self._observed.open(encoding="ascii") as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        words = (line.split() for line in text.splitlines())
        return [(int(port), bytes.fromhex(frame)) for port, frame in words]


class AsicModelTarget:
    """A Tofino's ASIC model with a compiled program in it.

    Parameters
    ----------
    can
        Capabilities of the program.
    binary, context
        The program: what p4c calls ``tofino.bin`` (``tofino2.bin``) and ``context.json``.
    chip
        Which one.
    """

    kind = TARGETS["tofino"]
    growth_bytes = kind.growth_bytes

    def __init__(self, can: Capabilities, binary: bytes, context: bytes, *, chip: Chip = TOFINO) -> None:
        self.lanes = can.lanes
        self._chip = chip
        self.can = can
        rounds = 2 * (can.passes - 1)  # there and back
        self._until_done = "\n".join(["wait"] + [f"sleep {ROUND_S}\nwait"] * rounds)
        self._temporary = tempfile.TemporaryDirectory(prefix="netsum-asic-")
        self._folder = Path(self._temporary.name)
        self._groups = MulticastGroups(chip.layout)
        self._sram: dict[Place, int] = {}
        self._entries: dict[str, tuple[dict[Place, int], list[Place]]] = {}
        self._to_controller: list[Packet] = []
        self._harness = Harness(os.environ[chip.harness], self._folder)
        try:
            self._load(binary, context)
        except BaseException:
            self.close()
            raise

    @classmethod
    def compiled(cls, lanes: int, tree: bool = False, chip: Chip = TOFINO) -> "AsicModelTarget":
        """Make one with a program of `make p4-tofino`."""
        folder = program_folder(lanes, tree, chip)
        pipe, can = folder / "pipe", read_capabilities(folder / f"{folder.name}.p4info.txtpb")
        binary, context = (pipe / f"{chip.name}.bin").read_bytes(), (pipe / "context.json").read_bytes()
        return cls(can, binary, context, chip=chip)

    def _load(self, binary: bytes, context: bytes) -> None:
        chip = self._chip
        (self._folder / "program.bin").write_bytes(binary)
        (self._folder / "context.json").write_bytes(context)
        first = chip.first_port
        ports = [*range(first, first + PORTS), chip.recirculation_port, chip.cpu_port]
        self._harness.run(["load program.bin", "load context.json", *(f"expect {port}" for port in ports)])
        self._write(connect_ports(chip.layout))

    def close(self) -> None:
        self._harness.close()
        self._temporary.cleanup()

    def send(self, packets: Sequence[Packet]) -> list[Packet]:
        return self._send((port + self._chip.first_port, frame) for port, frame in packets)

    def _send(self, packets: Iterable[Packet]) -> list[Packet]:
        chip = self._chip
        self._harness.run(f"packet {port} {frame.hex()}\n{self._until_done}" for port, frame in packets)
        left = self._harness.left()
        self._to_controller += [
            (int.from_bytes(frame[:2], "big") - chip.first_port, frame[2:])
            for port, frame in left
            if port == chip.cpu_port
        ]
        cut = without_unread_lanes if self.can.passes > 1 else bytes
        first = chip.first_port
        return [(port - first, cut(frame)) for port, frame in left if first <= port < first + PORTS]

    def send_from_controller(self, egress_port: int, frame: bytes) -> list[Packet]:
        device_port = egress_port + self._chip.first_port
        return self._send([(self._chip.cpu_port, device_port.to_bytes(2, "big") + frame)])

    def received_by_controller(self, count: int) -> list[Packet]:
        assert len(self._to_controller) >= count, (
            f"{len(self._to_controller)} packet-ins came instead of {count}"
        )
        packets, self._to_controller = self._to_controller[:count], self._to_controller[count:]
        return packets

    def insert(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            key = self._described_key(entry)
            assert key not in self._entries, f"there is an entry {key}"
            said = self._harness.run([f"add {key} {self._described_action(entry.action, entry.params)}"])
            changed: dict[Place, int] = {}
            tcam_rows = []
            before: dict[Place, int] = {}
            for line in said:
                if found := SRAM_READ.search(line):
                    before[place(found)] = int(found[4], 16)
                elif found := SRAM_WRITE.search(line):
                    at, row = place(found), int(found[4], 16)
                    self._sram[at] = row
                    changed[at] = changed.get(at, 0) ^ row ^ before[at]
                elif found := TCAM_WRITE.search(line):
                    tcam_rows.append(place(found))
            assert changed or tcam_rows, (
                f"the ASIC model's harness does not say where it wrote {key}: {said[-3:]}"
            )
            self._entries[key] = changed, tcam_rows

    def delete(self, entries: Iterable[Entry]) -> None:
        """Undo the changes of `insert`: the harness cannot delete entries, but reports its writes."""
        commands, cleared = [], b""
        for entry in entries:
            changed, tcam_rows = self._entries.pop(self._described_key(entry))
            for at, bits in changed.items():
                self._sram[at] ^= bits
                stage, memory, row = at
                commands.append(f"write_raw_sram {stage}:{memory}:{row} {self._sram[at]:032x}")
            cleared += b"".join(clear_tcam_row(self._chip.layout, *at) for at in tcam_rows)
        self._harness.run(commands)
        self._write(cleared)

    def set_default(self, table: str, action: str, params: Mapping[str, int]) -> None:
        self._harness.run([f"setdefault .{table} {self._described_action(action, params)}"])

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        self._write(self._groups.set(group, [(port + self._chip.first_port, rid) for port, rid in replicas]))

    def delete_group(self, group: int) -> None:
        self._write(self._groups.delete(group))

    def set_up(self, group: int, replicas: Sequence[tuple[int, int]], entries: Iterable[Entry]) -> None:
        self.set_group(group, replicas)
        self.insert(entries)

    def tear_down(self, group: int, entries: Iterable[Entry]) -> None:
        self.delete(entries)
        self.delete_group(group)

    def counters(self, names: Sequence[str], index: int) -> dict[str, int]:
        said = self._harness.run(f"check_counter 0:.{name}({index})" for name in names)
        found = {(match[1], match[2]): int(match[3]) for match in map(COUNTER.match, said) if match}
        return {name: found.get((name, "physical"), found.get((name, "virtual"), 0)) for name in names}

    def _described_key(self, entry: Entry) -> str:
        """Write an entry's table, priority and key as the harness reads them."""
        words = [f".{entry.table}"]
        for name, value in entry.key.items():
            if isinstance(value, tuple):
                bits, length = f"{value[0]:032b}", value[1]
                # A row is a priority; prefixes of one length may share none, so their value chooses one.
                words.insert(
                    1, str(length * PRIORITIES_A_LENGTH + (value[0] >> 32 - length) % PRIORITIES_A_LENGTH)
                )
                words.append(f"{name}:0b{bits[:length]}{'*' * (32 - length)}")
            else:
                words.append(f"{name}:{self._device_port(value) if name == 'ingress_port' else value}")
        return " ".join(words)

    def _described_action(self, action: str, params: Mapping[str, int]) -> str:
        """Write an action as the harness reads it."""
        given = (
            f"{name}:{self._device_port(value) if name == 'port' else value}"
            for name, value in params.items()
        )
        return f".{action}({', '.join(given)})"

    def _device_port(self, port: int) -> int:
        return self._chip.cpu_port if port == CPU_PORT else self._chip.first_port + port

    def _write(self, binary: bytes) -> None:
        if binary:
            (self._folder / "writes.bin").write_bytes(binary)
            self._harness.run(["load writes.bin"])


def place(found: re.Match[str]) -> Place:
    """Return the place that a line names."""
    return int(found[1]), int(found[2]), int(found[3])
