"""Read the controls of BMv2 JSON: tables, constant entries, branches, action profiles."""

from collections.abc import Callable
from typing import Any

from sim.switch import ir
from sim.switch.load_expressions import ExpressionReader, source_place
from sim.switch.primitives import HASHES

_KINDS = ("exact", "lpm", "ternary", "range", "optional", "valid")


class TableReader:
    """Reads pipelines; action profiles met on the way are kept in `profiles`."""

    def __init__(
        self, expressions: ExpressionReader, width: Callable[[ir.Expr], int], actions: dict[str, int]
    ) -> None:
        self.expressions = expressions
        self.width = width
        self.actions = actions  # Ids by name, for files of p4c-bm, whose tables name their actions.
        self.profiles: dict[str, ir.ActionProfile] = {}

    def pipeline(self, node: dict[str, Any]) -> ir.Pipeline:
        """Read one control."""
        for profile in node.get("action_profiles", []):
            self.profiles[profile["name"]] = self._profile(profile)
        for table in node["tables"]:
            if "act_prof_name" in table:  # The profile of p4c-bm is a part of its table.
                self.profiles[table["act_prof_name"]] = self._profile(
                    table | {"name": table["act_prof_name"]}
                )
        if node.get("action_calls"):
            self.expressions.unsupported("action calls outside tables")
        return ir.Pipeline(
            node["name"],
            node["init_table"],
            {t["name"]: self._table(t) for t in node["tables"]},
            {
                c["name"]: ir.If(
                    c["name"], self.expressions.read(c["expression"]), c["true_next"], c["false_next"]
                )
                for c in node["conditionals"]
            },
        )

    def _profile(self, node: dict[str, Any]) -> ir.ActionProfile:
        selector = None
        if node.get("selector"):
            algorithm = node["selector"]["algo"]
            if algorithm not in HASHES:
                self.expressions.unsupported(f"hash algorithm {algorithm!r}")
            inputs = tuple(self.expressions.read(i) for i in node["selector"]["input"])
            selector = (algorithm, tuple((i, self.width(i)) for i in inputs))
        return ir.ActionProfile(node["name"], int(node.get("max_size", 1024)), selector)

    def _key_field(self, node: dict[str, Any]) -> ir.KeyField:
        kind = node["match_type"]
        if kind not in _KINDS:
            self.expressions.unsupported(f"match kind {kind!r}")
        target = node["target"]
        if kind == "valid":
            expr: ir.Expr = ir.FieldRef(target if isinstance(target, str) else target[0], "$valid$")
        else:
            expr = (
                self.expressions.read(target) if isinstance(target, dict) else self.expressions.field(target)
            )
        width = self.width(expr)
        name = node.get("name") or (target if isinstance(target, str) else ".".join(map(str, target)))
        return ir.KeyField(name, kind, expr, width, int(node["mask"], 16) if node.get("mask") else None)

    def _table(self, node: dict[str, Any]) -> ir.Table:
        key = tuple(self._key_field(k) for k in node["key"])
        if node["type"] not in ("simple", "indirect", "indirect_ws"):
            self.expressions.unsupported(f"table {node['name']} of type {node['type']!r}")
        ids = node.get("action_ids") or [self.actions[name] for name in node["actions"]]
        names = dict(zip(node["actions"], ids, strict=True))
        next_tables: dict[int | str, str | None] = {
            names.get(event, event): following for event, following in node["next_tables"].items()
        }
        default = node.get("default_entry") or {}
        return ir.Table(
            id=node["id"],
            name=node["name"],
            kind=node["match_type"],
            key=key,
            actions=tuple(ids),
            next_tables=next_tables,
            base_next=node.get("base_default_next"),
            default_action=default.get("action_id"),
            default_params=tuple(int(d, 16) for d in default.get("action_data", [])),
            default_const=bool(default.get("action_const", False)),
            entries=tuple(self._entry(key, e) for e in node.get("entries", [])),
            immutable="entries" in node,
            size=int(node.get("max_size", 1024)),
            profile=node.get("action_profile", node.get("act_prof_name"))
            if node["type"] != "simple"
            else None,
            with_counters=bool(node.get("with_counters")),
            direct_meter=node.get("direct_meters"),
            place=source_place(node),
        )

    def _entry(self, key: tuple[ir.KeyField, ...], node: dict[str, Any]) -> ir.ConstEntry:
        matches: list[tuple[int, int | None]] = []
        for match in node["match_key"]:
            kind = match["match_type"]
            if kind == "range":
                matches.append((int(match["start"], 16), int(match["end"], 16)))
            elif kind == "valid":
                matches.append((int(bool(match["key"])), None))
            else:
                value = int(match["key"], 16)
                mask = match.get("mask")
                second = match.get("prefix_length") if kind == "lpm" else (int(mask, 16) if mask else None)
                matches.append((value, second))
        action = node["action_entry"]
        return ir.ConstEntry(
            tuple(matches),
            int(node.get("priority", 0)),
            action["action_id"],
            tuple(int(d, 16) for d in action["action_data"]),
        )
