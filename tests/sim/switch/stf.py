"""p4c's STF scripts (packets in, packets out), run on the embedded engine.

Meanings are those of p4c's own BMv2 runner: ports collect packets in order; an expectation is a prefix unless it ends with
``$``; ``*`` stands for any digit; on a port that is not mentioned, no packet may leave.
"""

from __future__ import annotations

import re
from pathlib import Path

from sim.switch import Exact, Lpm, Packets, Range, Switch, TableEntry, Ternary, load_program

_ADD = re.compile(r"^(\S+)\s+(?:(\d+)\s+)?(.*?)\s*([\w.$]+)\s*\(([^)]*)\)\s*(?:=\s*\S+)?$")
_COMMANDS_WITHOUT_EFFECT = {"wait", "mirroring_get", "register_read", "meter_get_rates", "mc_mgrp_create"}


class StfError(AssertionError):
    """A script that the engine did not satisfy, or a statement this runner does not know."""


def _number(text: str) -> int:
    return int(text, 0)


class _Script:
    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.program = switch.program
        self.out: dict[int, list[str]] = {}
        self.expected: dict[int, list[str | None]] = {}
        self.nodes: list[list[tuple[int, int]]] = []
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.now_ns = 0

    def run(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        command, rest = command.lower(), rest.strip()
        if command in _COMMANDS_WITHOUT_EFFECT:
            return
        method = getattr(self, f"do_{command}", None)
        if method is None:
            raise StfError(f"statement {line!r} is not known to this runner")
        method(rest)

    def do_packet(self, rest: str) -> None:
        port, _, data = rest.partition(" ")
        self.now_ns += 1_000_000
        frame = bytes.fromhex("".join(data.split()))
        for out_port, out in self.switch.inject(Packets.of([(int(port), frame)]), self.now_ns):
            self.out.setdefault(out_port, []).append(out.hex().upper())

    def do_expect(self, rest: str) -> None:
        port, _, data = rest.partition(" ")
        self.expected.setdefault(int(port), []).append("".join(data.split()).upper() or None)

    def _table(self, name: str) -> str:
        tables = self.program.tables
        if name in tables:
            return name
        found = [t for t in tables if t.endswith(name)]
        if len(found) != 1:
            raise StfError(f"table {name}: {found}")
        return found[0]

    def _action(self, table: str, name: str) -> tuple[str, list[tuple[str, int]]]:
        actions = [self.program.actions[a] for a in self.program.tables[table].actions]
        found = [a for a in actions if a.name == name] or [a for a in actions if a.name.endswith(name)]
        if len(found) != 1:
            raise StfError(f"action {name}: {[a.name for a in found]}")
        return found[0].name, list(found[0].params)

    def _match(self, kind: str, text: str | None, width: int) -> Exact | Lpm | Ternary | Range:
        if kind in ("exact", "valid"):
            return Exact(_number(text or "0"))
        if kind == "lpm":
            if text is None:
                return Lpm(0, 0)
            value, _, length = text.partition("/")
            return Lpm(_number(value.replace("*", "0")), int(length) if length else self._digits(value))
        if kind == "range":
            return Range(0, (1 << width) - 1) if text is None else Range(_number(text), _number(text))
        if text is None:
            return Ternary(0, 0)
        mask = text[:2] + "".join("0" if c == "*" else "F" if text[1] == "x" else "1" for c in text[2:])
        full = (1 << width) - 1
        return Ternary(_number(text.replace("*", "0")) & _number(mask) & full, _number(mask) & full)

    @staticmethod
    def _digits(value: str) -> int:
        return {"x": 4, "b": 1, "o": 3}[value[1]] * (len(value) - 2 - value.count("*"))

    def _key_name(self, table: str, name: str) -> str:
        names = [k.name for k in self.program.tables[table].key]
        name = re.sub(r"\$(\d+)", r"[\1]", name)
        for candidate in (name, f"{name}$", f"{name}.$valid$"):
            if candidate in names:
                return candidate
        if name.endswith(".valid") and name[:-5] + "$valid$" in names:
            return name[:-5] + "$valid$"
        found = [n for n in names if n.endswith((f".{name}", f".{name}$"))]
        if not found:
            raise StfError(f"key field {name}: {names}")
        return found[-1]

    def do_add(self, rest: str) -> None:
        found = _ADD.match(rest)
        if found is None:
            raise StfError(f"statement {rest!r} does not parse")
        table = self._table(found[1])
        keys = {}
        for pair in found[3].split():
            name, _, value = pair.rpartition(":")
            keys[self._key_name(table, name)] = value
        matches = tuple(
            self._match(k.kind, keys.get(k.name), k.width) for k in self.program.tables[table].key
        )
        action, params = self._arguments(table, found[4], found[5])
        self.switch.table_insert(table, TableEntry(matches, int(found[2] or 0), action, params))

    def _arguments(self, table: str, name: str, text: str) -> tuple[str, tuple[int, ...]]:
        action, params = self._action(table, name)
        values = dict(pair.split(":") for pair in text.replace(" ", "").split(",") if pair)
        return action, tuple(_number(values[n]) for n, _ in params)

    def do_setdefault(self, rest: str) -> None:
        found = _ADD.match(rest)
        if found is None:
            raise StfError(f"statement {rest!r} does not parse")
        table = self._table(found[1])
        self.switch.table_set_default(table, *self._arguments(table, found[4], found[5]))

    def do_mirroring_add(self, rest: str) -> None:
        session, port = rest.split()
        self.switch.clone_set(_number(session), [(_number(port), 0)])

    def do_mirroring_add_mc(self, rest: str) -> None:
        session, group = rest.split()
        self.switch.clone_set(_number(session), self.groups[_number(group)])

    def do_mc_node_create(self, rest: str) -> None:
        rid, *ports = (_number(n) for n in rest.split())
        self.nodes.append([(port, rid) for port in ports])

    def do_mc_node_associate(self, rest: str) -> None:
        group, node = (_number(n) for n in rest.split())
        self.groups.setdefault(group, []).extend(self.nodes[node])
        self.switch.mcast_set(group, self.groups[group])

    def do_register_write(self, rest: str) -> None:
        name, index, value = rest.split()
        self.switch.register_view(name)[_number(index)] = _number(value)

    def do_register_reset(self, rest: str) -> None:
        self.switch.register_view(rest)[:] = 0

    def check(self) -> None:
        for port in sorted(self.out.keys() | self.expected.keys()):
            expected, got = self.expected.get(port, []), self.out.get(port, [])
            if expected and expected[-1] is None:
                continue
            if len(expected) != len(got):
                raise StfError(f"port {port}: {len(expected)} packets expected, {len(got)} came: {got}")
            for number, (wanted, packet) in enumerate(zip(expected, got, strict=True)):
                if wanted is not None and not _same(wanted, packet):
                    raise StfError(f"port {port}, packet {number}: expected {wanted}, got {packet}")


def _same(wanted: str, packet: str) -> bool:
    strict = wanted.endswith("$")
    wanted = wanted.removesuffix("$")
    if len(packet) < len(wanted) or (strict and len(packet) > len(wanted)):
        return False
    return all(w in ("*", p) for w, p in zip(wanted, packet, strict=False))


def run_stf(program: Path, script: Path, cache_dir: Path | None = None) -> None:
    """Run a script against a compiled program; raises `StfError` where they disagree."""
    runner = _Script(Switch(load_program(program), cache_dir))
    for raw in script.read_text().splitlines():
        line = raw.split("#")[0].strip()
        if line:
            runner.run(line)
    runner.check()
