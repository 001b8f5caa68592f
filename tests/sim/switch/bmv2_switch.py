"""BMv2's simple_switch behind pipes: entries by its command line, packets by pcap streams, no root.

One packet is sent at a time and its outputs awaited, since BMv2's threads do not keep order between ports. All go in by one
port: BMv2 waits for the next packet of the port it read last.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from sim.switch import Exact, Lpm, Optional, Range, TableEntry, Ternary, ir
from tests.free_ports import free_port
from tests.sim.switch.thrift import run_client

__all__ = ["Bmv2", "commands_for_entry"]

_PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
_DEADLINE_S = 400.0
_HIGHEST = 1 << 24


def commands_for_entry(program: ir.Program, table: str, entry: TableEntry) -> list[str]:
    """Return the command of simple_switch_CLI that adds an entry."""
    parts = []
    for field, match in zip(program.tables[table].key, entry.key, strict=True):
        full = (1 << field.width) - 1
        if isinstance(match, Lpm):
            parts.append(f"{match.value:#x}/{match.prefix_length}")
        elif isinstance(match, Range):
            parts.append(f"{match.low:#x}->{match.high:#x}")
        elif isinstance(match, Optional):
            parts.append("0&&&0" if match.value is None else f"{match.value:#x}&&&{full:#x}")
        elif isinstance(match, Ternary):
            parts.append(f"{match.value:#x}&&&{match.mask:#x}")
        elif isinstance(match, Exact):
            parts.append(f"{match.value:#x}" + (f"&&&{full:#x}" if field.kind == "ternary" else ""))
    key = " ".join(parts)
    priority = f" {_HIGHEST - entry.priority}" if program.tables[table].kind in ("ternary", "range") else ""
    if entry.member is not None:
        return [f"table_indirect_add {table} {key} => {entry.member}{priority}"]
    if entry.group is not None:
        return [f"table_indirect_add_with_group {table} {key} => {entry.group}{priority}"]
    arguments = " ".join(f"{p:#x}" for p in entry.params)
    return [f"table_add {table} {entry.action} {key} => {arguments}{priority}"]


class Bmv2:
    """A running simple_switch.

    Parameters
    ----------
    program
        BMv2 JSON.
    ports
        The ports that exist; the first is the one packets come in by.
    directory
        For pipes and output files.
    """

    def __init__(self, program: Path, ports: Sequence[int], directory: Path) -> None:
        self.directory = directory
        self.ports = list(ports)
        self.thrift_port = free_port()
        for port in self.ports:
            os.mkfifo(directory / f"p{port}_in.pcap")
        interfaces = [option for p in self.ports for option in ("-i", f"{p}@p{p}")]
        command = ["simple_switch", *interfaces, "--use-files", "0", "--thrift-port", str(self.thrift_port)]
        command += ["--device-id", str(self.thrift_port), "--notifications-addr"]
        command += [f"ipc://{directory}/notifications.ipc", str(program.resolve())]
        self.log = (directory / "switch.log").open("wb")
        self.process = subprocess.Popen(command, cwd=directory, stdout=self.log, stderr=self.log)
        self._read_to = dict.fromkeys(self.ports, len(_PCAP_HEADER))
        # BMv2 opens its ports before it listens for commands.
        self.inputs = {port: self._open(port) for port in self.ports}
        for port in self.ports[1:]:
            self.inputs.pop(port).close()
        self._wait_for_thrift()

    def _wait_for_thrift(self) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"simple_switch ended: {self._log()}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.thrift_port)) == 0:
                    return
            time.sleep(0.02)
        raise TimeoutError("simple_switch did not open its Thrift port")

    def _log(self) -> str:
        return (self.directory / "switch.log").read_text()

    def command(self, *lines: str) -> str:
        """Run simple_switch_CLI commands; raises if one is refused."""
        done = run_client(lines, "--thrift-port", str(self.thrift_port), timeout_s=_DEADLINE_S)
        done.check_returncode()
        for bad in ("Invalid", "Error", "Unknown", "syntax"):
            if bad in done.stdout:
                raise RuntimeError(f"BMv2 refused {lines}: {done.stdout}")
        return done.stdout

    def _open(self, port: int) -> BinaryIO:
        """Open a port's input pipe as soon as the switch reads it."""
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                handle = os.open(self.directory / f"p{port}_in.pcap", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                time.sleep(0.01)
                continue
            os.set_blocking(handle, True)
            stream = os.fdopen(handle, "wb")
            stream.write(_PCAP_HEADER)
            stream.flush()
            return stream
        raise TimeoutError(f"simple_switch did not open port {port}: {self._log()}")

    def send(self, frame: bytes, expected: int, settle_s: float = 0.0) -> list[tuple[int, bytes]]:
        """Send a packet; returns what leaves, after `expected` packets have left and `settle_s` more has passed."""
        stream = self.inputs[self.ports[0]]
        stream.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
        stream.flush()
        out: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + _DEADLINE_S
        while len(out) < expected and time.monotonic() < deadline:
            out += self.collect()
            if self.process.poll() is not None:
                raise RuntimeError(f"simple_switch ended: {self._log()}")
            if len(out) < expected:
                time.sleep(0.0005)
        if settle_s:
            time.sleep(settle_s)
            out += self.collect()
        return out

    def collect(self) -> list[tuple[int, bytes]]:
        """Return the packets that have left since the last call, port by port."""
        out = []
        for port in self.ports:
            path = self.directory / f"p{port}_out.pcap"
            if not path.exists() or path.stat().st_size <= self._read_to[port]:
                continue
            with path.open("rb") as file:
                file.seek(self._read_to[port])
                content = file.read()
            at = 0
            while at + 16 <= len(content):
                size = struct.unpack_from("<I", content, at + 8)[0]
                if at + 16 + size > len(content):
                    break
                out.append((port, content[at + 16 : at + 16 + size]))
                at += 16 + size
            self._read_to[port] += at
        return out

    def __enter__(self) -> Bmv2:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(_DEADLINE_S)
        for stream in self.inputs.values():
            try:
                stream.close()
            except BrokenPipeError:
                continue
        self.log.close()


def describe(packets: Iterable[tuple[int, bytes]]) -> list[tuple[int, str]]:
    """Return packets sorted and readable, for comparing and for messages."""
    return sorted((port, frame.hex()) for port, frame in packets)
