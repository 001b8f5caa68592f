"""The smallest v1model programs in BMv2 JSON: one header in, some assignments, one header out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["STANDARD", "document", "field", "hexstr", "op", "write"]

STANDARD = [
    ["ingress_port", 9, False],
    ["egress_spec", 9, False],
    ["egress_port", 9, False],
    ["instance_type", 32, False],
    ["packet_length", 32, False],
    ["mcast_grp", 16, False],
    ["egress_rid", 16, False],
    ["checksum_error", 1, False],
    ["parser_error", 32, False],
    ["_padding", 3, False],
]
_ALIASES = [[f"intrinsic_metadata.{n}", ["standard_metadata", n]] for n in ("mcast_grp", "egress_rid")]


def field(header: str, name: str) -> dict[str, Any]:
    """Return a reference to a field."""
    return {"type": "field", "value": [header, name]}


def hexstr(value: int) -> dict[str, Any]:
    """Return a constant."""
    return {"type": "hexstr", "value": hex(value)}


def op(name: str, left: Any, right: Any, cond: Any = None) -> dict[str, Any]:
    """Return an expression."""
    value = {"op": name, "left": left, "right": right}
    if cond is not None:
        value["cond"] = cond
    return {"type": "expression", "value": value}


def _padded(fields: list[list[Any]]) -> list[list[Any]]:
    extra = -sum(f[1] for f in fields) % 8
    return [*fields, ["_pad", extra, False]] if extra else fields


def document(
    inputs: list[list[Any]], outputs: list[list[Any]], primitives: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a program that extracts header ``i``, runs `primitives` and emits header ``o``.

    Fields are ``[name, width, signed]``; the headers are padded to whole bytes at their end.
    """
    types = [("standard_metadata", STANDARD), ("i_t", _padded(inputs)), ("o_t", _padded(outputs))]
    headers = [("standard_metadata", "standard_metadata", True), ("i", "i_t", False), ("o", "o_t", False)]
    start = [
        {"op": "add_header", "parameters": [{"type": "header", "value": "o"}]},
        {"op": "assign", "parameters": [field("standard_metadata", "egress_spec"), hexstr(1)]},
    ]
    table = {
        "name": "t",
        "id": 0,
        "key": [],
        "match_type": "exact",
        "type": "simple",
        "max_size": 1,
        "with_counters": False,
        "support_timeout": False,
        "direct_meters": None,
        "action_ids": [0],
        "actions": ["a"],
        "base_default_next": None,
        "next_tables": {"a": None},
        "default_entry": {
            "action_id": 0,
            "action_const": True,
            "action_data": [],
            "action_entry_const": True,
        },
    }
    empty: dict[str, Any] = {"tables": [], "conditionals": [], "action_profiles": [], "init_table": None}
    return {
        "__meta__": {"version": [2, 24]},
        "header_types": [{"name": n, "id": i, "fields": f} for i, (n, f) in enumerate(types)],
        "headers": [
            {"name": n, "id": i, "header_type": t, "metadata": m} for i, (n, t, m) in enumerate(headers)
        ],
        "parsers": [
            {
                "name": "parser",
                "id": 0,
                "init_state": "start",
                "parse_states": [
                    {
                        "name": "start",
                        "id": 0,
                        "parser_ops": [{"op": "extract", "parameters": [{"type": "regular", "value": "i"}]}],
                        "transitions": [{"type": "default", "value": None, "mask": None, "next_state": None}],
                        "transition_key": [],
                    }
                ],
            }
        ],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["o"]}],
        "actions": [{"name": "a", "id": 0, "runtime_data": [], "primitives": start + primitives}],
        "pipelines": [
            {**empty, "name": "ingress", "id": 0, "init_table": "t", "tables": [table]},
            {**empty, "name": "egress", "id": 1},
        ],
        "field_aliases": _ALIASES,
    }


def write(document: dict[str, Any], path: Path) -> Path:
    """Write a document to a file and return its path."""
    path.write_text(json.dumps(document))
    return path
