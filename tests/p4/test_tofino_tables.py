"""The tables of Tofino's page, made from what the compiler reports."""

import json
from pathlib import Path

import pytest

from docs import tofino_tables
from tests.p4.test_tofino import ASSEMBLY


def stage(number: int, alus: int, tables: int) -> dict[str, object]:
    """A stage of resources.json, as compiler_interfaces/schemas/resources_schema.py of p4c says it is."""
    rams = [{"row": row, "column": 2, "way": row, "usages": []} for row in range(5)]
    return {
        "stage_number": number,
        "meter_alus": {"nAlus": 4, "meters": [{"row": row} for row in range(alus)]},
        "rams": {"nRows": 8, "nColumns": 10, "srams": [*rams, {**rams[0], "way": 3}]},
        "map_rams": {"nRows": 8, "nUnits": 6, "maprams": [{"row": row, "unit_id": 0} for row in range(4)]},
        "tcams": {"nRows": 12, "nColumns": 2, "tcams": [{"row": 1, "column": 1}]},
        "hash_bits": {
            "nBits": 52,
            "nFunctions": 8,
            "bits": [{"hash_bit": bit, "hash_function": 0} for bit in range(11)],
        },
        "logical_tables": {"size": 16, "ids": [{"id": table} for table in range(tables)]},
    }


def container(number: int, bits: int, kind: str) -> dict[str, object]:
    """A container in phv.json."""
    return {"phv_number": number, "bit_width": bits, "container_type": kind}


def test_report_reads_what_the_compiler_wrote(tmp_path: Path) -> None:
    logs = tmp_path / "pipe" / "logs"
    logs.mkdir(parents=True)
    described = {
        "mau": {"nStages": 3, "mau_stages": [stage(0, 0, 3), stage(1, 4, 2)]},
        "phv_containers": {
            "normal": [{"units": 64, "width": 32}, {"units": 64, "width": 8}],
            "mocha": [{"units": 16, "width": 16}],
            "tagalong": [{"units": 32, "width": 32}],
        },
    }
    (logs / "resources.json").write_text(json.dumps({"resources": described}))
    containers = [container(0, 32, "normal"), container(0, 32, "normal"), container(9, 16, "mocha")]
    (logs / "phv.json").write_text(json.dumps({"containers": [*containers, container(300, 8, "tagalong")]}))
    report = tofino_tables.report(tmp_path)
    assert str(report.stages) == "2 of 3 (66 %)"
    assert str(report.sections["stateful ALUs"]) == "4 of 12 (33 %)"
    assert str(report.sections["SRAM"]) == "10 of 240 (4 %)"
    assert str(report.sections["hash bits"]) == "22 of 1248 (1 %)"
    assert (report.phv_bits.used, report.phv_bits.available) == (32 + 16, 64 * 40 + 16 * 16)
    row = list(tofino_tables.rows([("tofino", "32", report)]))[2]
    assert row.startswith("| tofino | 32 | 2 of 3 (66 %) | 4 of 12 (33 %) |")


def test_stages_are_those_of_the_assembly() -> None:
    assert list(tofino_tables.stage_rows(ASSEMBLY))[2:] == [
        "| 0 | `worker_admission`, target | 2 counters |",
        "| 3 | **lanes 30 to 31** |  |",
    ]


def test_table_is_put_between_its_markers() -> None:
    page = "a\n<!-- resources: begin -->\nold\n<!-- resources: end -->\nb\n"
    written = tofino_tables.write_table(page, "resources", "new")
    assert written == "a\n<!-- resources: begin -->\nnew\n<!-- resources: end -->\nb\n"
    assert tofino_tables.write_table(written, "resources", "new") == written
    with pytest.raises(tofino_tables.BuildError, match="no place"):
        tofino_tables.write_table("a", "resources", "new")
