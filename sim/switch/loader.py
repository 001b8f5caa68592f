"""Load BMv2 JSON (p4c-bm2-ss output, format 2.x) as a `Program`, or say by name why not."""

import hashlib
import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, cast

from sim.switch import ir
from sim.switch.load_expressions import ExpressionReader, source_place
from sim.switch.load_tables import TableReader
from sim.switch.primitives import HASHES, check_primitive
from sim.switch.switch_errors import UnsupportedProgramError

_PARSER_OPS = {"extract", "extract_VL", "set", "verify", "shift", "advance", "primitive"}


def load_program(path: str | PathLike[str]) -> ir.Program:
    """Read and check a compiled v1model program.

    Parameters
    ----------
    path
        A BMv2 JSON file, as written by ``p4c-bm2-ss`` or ``p4c --target bmv2 --arch v1model``.

    Raises
    ------
    UnsupportedProgramError
        Naming every construct that the engine does not support.
    """
    name = str(path)
    try:
        document = json.loads(Path(path).read_text())
    except ValueError as error:
        raise UnsupportedProgramError([f"text that is not JSON ({error})"], name) from None
    missing = {"headers", "header_types", "parsers", "deparsers", "pipelines", "actions"}
    if not isinstance(document, dict) or (missing := missing - document.keys()):
        lacks = ", no ".join(sorted(missing))
        raise UnsupportedProgramError([f"JSON that is no program of BMv2's (it has no {lacks})"], name)
    try:
        version = document.get("__meta__", {}).get("version", [2])  # As for BMv2.
        if version[0] != 2:
            raise UnsupportedProgramError([f"BMv2 JSON version {version}"], name)
        return _Loader(document, name).load()
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration, RuntimeError) as error:
        what = f"malformed BMv2 JSON ({type(error).__name__}: {error})"
        raise UnsupportedProgramError([what], name) from error


def _fingerprint(document: dict[str, Any]) -> str:
    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: strip(v) for k, v in node.items() if k not in ("source_info", "program")}
        if isinstance(node, list):
            return [strip(v) for v in node]
        return node

    return hashlib.sha256(json.dumps(strip(document), sort_keys=True).encode()).hexdigest()


class _Loader:
    def __init__(self, document: dict[str, Any], path: str) -> None:
        self.document = document
        self.path = path
        self.problems: list[str] = []
        self.expressions = ExpressionReader(self.problems)
        self.types = {t["name"]: self._header_type(t) for t in document["header_types"]}
        self.headers = {
            h["name"]: ir.Header(h["name"], self.types[h["header_type"]], h["metadata"])
            for h in document["headers"]
        }
        self.by_id = {h["id"]: h["name"] for h in document["headers"]}
        self.expressions.fields = {
            name: frozenset(f.name for f in header.type.fields) for name, header in self.headers.items()
        }

    def load(self) -> ir.Program:
        document = self.document
        pipelines = {p["name"]: p for p in document["pipelines"]}
        if pipelines.keys() != {"ingress", "egress"}:
            raise UnsupportedProgramError([f"controls {sorted(pipelines)} (not v1model)"], self.path)
        if len(document["parsers"]) != 1 or len(document["deparsers"]) != 1:
            raise UnsupportedProgramError(["more than one parser or deparser (not v1model)"], self.path)
        parser, deparser = document["parsers"][0], document["deparsers"][0]
        for extern in document.get("extern_instances", []):
            self.problems.append(f"extern {extern['name']} of type {extern['type']}")
        tables = TableReader(self.expressions, self._width, {a["name"]: a["id"] for a in document["actions"]})
        unions = self._unions()
        program = ir.Program(
            path=self.path,
            fingerprint=_fingerprint(document),
            header_types=self.types,
            headers=self.headers,
            stacks={
                s["name"]: ir.Stack(s["name"], tuple(self.by_id[i] for i in s["header_ids"]))
                for s in document.get("header_stacks", [])
            },
            unions=unions,
            union_stacks=self._union_stacks(),
            errors=dict(document.get("errors", [])),
            aliases={name: ir.FieldRef(*target) for name, target in document.get("field_aliases", [])},
            init_state=parser["init_state"],
            parse_states={s["name"]: self._state(s) for s in parser["parse_states"]},
            vsets={v["name"]: v["compressed_bitwidth"] for v in document.get("parse_vsets", [])},
            actions={a["id"]: self._action(a) for a in document["actions"]},
            ingress=tables.pipeline(pipelines["ingress"]),
            egress=tables.pipeline(pipelines["egress"]),
            deparser=tuple(deparser["order"]),
            deparser_ops=tuple(self._primitive(p) for p in deparser.get("primitives", [])),
            calculations={c["name"]: self._calculation(c) for c in document.get("calculations", [])},
            checksums=tuple(self._checksum(c) for c in document.get("checksums", [])),
            registers={
                r["name"]: ir.Register(r["name"], r["bitwidth"], r["size"])
                for r in document.get("register_arrays", [])
            },
            counters={
                c["name"]: ir.Counter(c["name"], c.get("size", 0), c.get("binding"))
                for c in document.get("counter_arrays", [])
            },
            meters={m["name"]: self._meter(m) for m in document.get("meter_arrays", [])},
            profiles=tables.profiles,
            field_lists={
                f["id"]: tuple(self._elements(f["elements"])) for f in document.get("field_lists", [])
            },
            digests={
                d["id"]: (d["name"], tuple((e, self._width(e)) for e in self._elements(d["elements"])))
                for d in document.get("learn_lists", [])
            },
        )
        self._check_required(program)
        if self.problems:
            raise UnsupportedProgramError(self.problems, self.path)
        return program

    def _check_required(self, program: ir.Program) -> None:
        for name in ("ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port"):
            if program.well_known(f"standard_metadata.{name}") is None:
                self.problems.append(f"no field standard_metadata.{name} (not v1model)")
        tables = [table for pipeline in self.document["pipelines"] for table in pipeline["tables"]]
        if all("action_ids" in table for table in tables):
            return
        # p4c-bm compiled for other targets of BMv2 too.
        calls = (call for action in program.actions.values() for call in action.primitives)
        targets = [call.args[0] for call in calls if call.args]
        written = {f"{each.header}.{each.field}" for each in targets if isinstance(each, ir.FieldRef)}
        if written & {"standard_metadata.egress_port", "standard_metadata.egress_spec"} == {
            "standard_metadata.egress_port"
        }:
            self.problems.append(
                "a port chosen by standard_metadata.egress_port, as for BMv2's target l2_switch (v1model: egress_spec)"
            )

    def _header_type(self, node: dict[str, Any]) -> ir.HeaderType:
        fixed = sum(f[1] for f in node["fields"] if f[1] != "*")
        fields = []
        for position, entry in enumerate(node["fields"]):
            name, width = entry[0], entry[1]
            if width == "*":
                before = sum(f[1] for f in node["fields"][:position])
                if before % 8:
                    self.problems.append(f"varbit field {node['name']}.{name} that is not byte-aligned")
                most = 8 * int(node.get("max_length", 0)) - fixed
                fields.append(ir.FieldType(name, max(most, 0), varbit=True))
            else:
                fields.append(ir.FieldType(name, int(width), len(entry) > 2 and bool(entry[2])))
        length = node.get("length_exp")
        return ir.HeaderType(node["name"], tuple(fields), self.expressions.read(length) if length else None)

    def _unions(self) -> dict[str, ir.Union]:
        types = {t["name"]: t for t in self.document.get("header_union_types", [])}
        return {
            u["name"]: ir.Union(
                u["name"],
                tuple(self.by_id[i] for i in u["header_ids"]),
                tuple(member for member, _ in types[u["union_type"]]["headers"]),
            )
            for u in self.document.get("header_unions", [])
        }

    def _union_stacks(self) -> dict[str, ir.Stack]:
        names = {u["id"]: u["name"] for u in self.document.get("header_unions", [])}
        return {
            s["name"]: ir.Stack(s["name"], tuple(names[i] for i in s["header_union_ids"]))
            for s in self.document.get("header_union_stacks", [])
        }

    def _stack_type(self, name: str) -> ir.HeaderType:
        stack = next(s for s in self.document["header_stacks"] if s["name"] == name)
        return self.headers[self.by_id[stack["header_ids"][0]]].type

    def _width(self, expr: ir.Expr) -> int:
        if isinstance(expr, ir.FieldRef):
            if expr.field == "$valid$":
                return 1
            fields = self.headers[expr.header].type.fields
            return next((f.width for f in fields if f.name == expr.field), 1)
        if isinstance(expr, ir.StackLast):
            kind = self._stack_type(expr.stack)
            return kind.fields[kind.index(expr.field)].width
        if isinstance(expr, ir.UnionStackLast):
            union = self._unions()[self._union_stacks()[expr.stack].members[0]]
            member = union.members[union.member_names.index(expr.member)]
            return self._width(ir.FieldRef(member, expr.field))
        if isinstance(expr, ir.Lookahead):
            return expr.width
        if isinstance(expr, ir.Op) and expr.op == "b2d":
            return 1
        if isinstance(expr, ir.Op) and expr.op == "access_field":
            header, position = expr.args
            stack = header.args[0] if isinstance(header, ir.Op) else None
            if isinstance(stack, ir.StackRef) and isinstance(position, ir.Const):
                return self._stack_type(stack.name).fields[position.value].width
        self.expressions.unsupported(f"key of kind {type(expr).__name__}")
        return 1

    def _elements(self, nodes: list[Any]) -> Iterator[ir.Expr]:
        for node in nodes:
            expr = self.expressions.read(node)
            if isinstance(expr, ir.HeaderRef):
                for member in self.headers[expr.name].type.fields:
                    yield ir.FieldRef(expr.name, member.name)
            else:
                yield expr

    def _state(self, node: dict[str, Any]) -> ir.ParseState:
        ops = []
        for op in node["parser_ops"]:
            if op["op"] not in _PARSER_OPS:
                self.expressions.unsupported(f"parser operation {op['op']!r}")
            elif op["op"] == "primitive":
                ops.append(self._primitive(op["parameters"][0]))
            elif op["op"] in ("extract", "extract_VL"):
                target, *more = op["parameters"]
                names = target["value"] if isinstance(target["value"], list) else [target["value"]]
                what = ir.Vector(tuple(map(ir.Text, names)))
                ops.append(
                    ir.Primitive(f"extract {target['type']}", (what, *map(self.expressions.read, more)))
                )
            elif op["op"] == "shift":
                ops.append(ir.Primitive("advance", (ir.Const(8 * int(op["parameters"][0])),)))
            else:
                ops.append(ir.Primitive(op["op"], tuple(self.expressions.read(p) for p in op["parameters"])))
        key = tuple((expr, self._width(expr)) for expr in map(self.expressions.read, node["transition_key"]))
        return ir.ParseState(
            node["name"], tuple(ops), key, tuple(self._transition(t) for t in node["transitions"])
        )

    def _transition(self, node: dict[str, Any]) -> ir.Transition:
        kind = node.get("type")
        if kind == "default" or node["value"] == "default":
            return ir.Transition("default", 0, None, "", node["next_state"])
        mask = int(node["mask"], 16) if node.get("mask") else None
        if kind == "parse_vset":
            return ir.Transition("vset", 0, mask, node["value"], node["next_state"])
        if kind not in ("hexstr", None):
            self.expressions.unsupported(f"parser transition of type {kind!r}")
        return ir.Transition("value", int(node["value"], 16), mask, "", node["next_state"])

    def _primitive(self, node: dict[str, Any]) -> ir.Primitive:
        primitive = ir.Primitive(
            node["op"],
            tuple(self.expressions.read(p) for p in node.get("parameters", [])),
            source_place(node),
        )
        if problem := check_primitive(primitive):
            self.expressions.unsupported(problem)
        return primitive

    def _action(self, node: dict[str, Any]) -> ir.Action:
        return ir.Action(
            node["id"],
            node["name"],
            tuple((p["name"], p["bitwidth"]) for p in node["runtime_data"]),
            tuple(self._primitive(p) for p in node["primitives"]),
        )

    def _calculation(self, node: dict[str, Any]) -> ir.Calculation:
        if node["algo"] not in HASHES:
            self.expressions.unsupported(f"hash algorithm {node['algo']!r}")
        inputs: list[tuple[ir.Expr, int]] = []
        payload = False
        for entry in node["input"]:
            if entry["type"] == "payload":
                payload = True
            elif entry["type"] == "hexstr":
                inputs.append((ir.Const(int(entry["value"], 16)), entry["bitwidth"]))
            elif entry["type"] == "header":
                for member in self.headers[entry["value"]].type.fields:
                    inputs.append((ir.FieldRef(entry["value"], member.name), member.width))
            else:
                expr = self.expressions.read(entry)
                inputs.append((expr, self._width(expr)))
        return ir.Calculation(node["name"], node["algo"], tuple(inputs), payload)

    def _checksum(self, node: dict[str, Any]) -> ir.Checksum:
        if node.get("type", "generic") != "generic":
            self.expressions.unsupported(f"checksum of type {node['type']!r}")
        condition = node.get("if_cond")
        return ir.Checksum(
            node["name"],
            ir.FieldRef(*node["target"]),
            node["calculation"],
            self.expressions.read(condition) if condition else None,
            node.get("verify", True),
            node.get("update", True),
        )

    def _meter(self, node: dict[str, Any]) -> ir.Meter:
        target = node.get("result_target")
        reference = cast(ir.FieldRef, self.expressions.field(target)) if target else None
        return ir.Meter(
            node["name"],
            node.get("size", 0),
            "bytes" if node["type"] == "bytes" else "packets",
            node.get("rate_count", 2),
            node.get("binding"),
            reference,
        )
