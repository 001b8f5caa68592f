"""The decisions of Tofino's program as a v1model program, so that the tests here can run them: no chip, no ASIC model.

The files of ``p4/tna`` about slots and variants and the ingress of ``netsum.p4`` are taken as they stand; only TNA's externs
are written otherwise. A register action becomes what TNA says it is: read the cell, run the body, write the cell. What this
shows is that the register actions and tables, in their order, are the slot protocol. What it does not show is that the
compiler puts them into stages rightly, and what is around them: parser, deparser, traffic manager, egress.

``python tests/dataplane/tna_logic/translate.py`` compiles it (needs p4c-bm2-ss) into the files beside this one, which
are committed.
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
P4 = HERE.parents[2] / "p4"
LANES = 8
PASSES = {"tna_logic": 1, "tna_passes": 2, "tna_tree": 1}
"""The programs made here, and how often a packet goes through each."""
IN_TREES = ("tna_tree",)
"""Files for switches in a tree."""
RECIRCULATION_PORT = 68
STAMP = HERE / "tna_logic.sha256"
COMPILE_TIMEOUT_S = 300
COMMENT = re.compile(r"[ \t]*//.*")

INCLUDE = re.compile(r'#include "(\w+\.p4)"\n')
"""Includes of another file of p4/tna; those of p4/shared are in another folder."""
ELSEWHERE = ("shim.p4", "target.p4", "one_pass.p4", "bridge.p4")
"""Names that v1model has of its own, or lacks."""
PAIRS = {"tag_t": ("epoch", "chunk"), "seen_t": ("seen", "collective")}
TYPE = r"\w+(?:<\d+>)?"
REGISTER = re.compile(rf"Register<({TYPE}), pool_index_t>\((\w+), [^;]*\) (\w+);")
ACTION = re.compile(
    rf"    RegisterAction<({TYPE}), pool_index_t, ({TYPE})>\((\w+)\) (\w+) = \{{\n"
    rf"        void apply\(inout {TYPE} (\w+)(?:, out {TYPE} (\w+))?\) \{{\n(.*?)\n        \}}\n    \}};\n",
    re.DOTALL,
)
HASH = re.compile(rf" *Hash<({TYPE})>\(HashAlgorithm_t\.IDENTITY\) (\w+);\n")
EXECUTE = re.compile(r"( *)(?:([\w.]+) = )?(\w+)\.execute\(([\w.]+)\);")


def width(name: str) -> int:
    """Return how many bits a register of this type has."""
    return 64 if name in PAIRS else int(re.findall(r"\d+", name)[0])


def without_externs(text: str) -> str:
    """Write registers, register actions, hashes and the larger of two as v1model has them."""
    actions = {found[3]: found for found in ACTION.findall(text)}

    def register(found: re.Match[str]) -> str:
        return f"register<bit<{width(found[1])}>>({found[2]}) {found[3]};"

    def execute(found: re.Match[str]) -> str:
        indent, result, name, index = found.groups()
        kind, out, cells, _, value, returned, body = actions[name]
        bits = f"bit<{width(kind)}>"
        lines = [
            f"{kind} {value};",
            f"{bits} {value}_bits;",
            f"{cells}.read({value}_bits, (bit<32>) {index});",
        ]
        if kind in PAIRS:
            low, high = (f"{value}.{field}" for field in PAIRS[kind])
            word = "int<32>" if kind == "tag_t" else "bit<32>"
            lines += [f"{low} = ({word}) {value}_bits[31:0];", f"{high} = ({word}) {value}_bits[63:32];"]
            packed = f"(bit<32>) {high} ++ (bit<32>) {low}"
        else:
            lines.append(f"{value} = ({kind}) {value}_bits;")
            packed = f"({bits}) {value}"
        if returned:
            lines.append(f"{out} {returned} = 0;")
        lines += [body, f"{cells}.write((bit<32>) {index}, {packed});"]
        if result:
            lines.append(f"{result} = {returned};")
        return "\n".join(indent + line for line in lines)

    text = ACTION.sub("", text)
    text = EXECUTE.sub(execute, text)
    text = REGISTER.sub(register, text)
    for kind, name in HASH.findall(text):
        for call in re.findall(rf"\b{name}\.get\(\{{ .*? \}}\)", text):
            fields = call[call.index("{ ") + 2 : call.index(" }")]
            text = text.replace(call, f"({kind}) ({fields.replace(', ', ' ++ ')})")
    text = HASH.sub("", text)
    return re.sub(r"max\((\w+), ([\w.]+)\)", r"(\1 > \2 ? \1 : \2)", text)


def files(name: str) -> tuple[Path, Path]:
    """Name the compiled program and its P4Info."""
    return HERE / f"{name}.json", HERE / f"{name}.p4info.txtpb"


def tna(part: str) -> str:
    """Read a file of p4/tna with what it includes of that folder, without externs; v1model's headers have no `frame`."""
    text = without_externs((P4 / "tna" / part).read_text())
    text = INCLUDE.sub(lambda found: "" if found[1] in ELSEWHERE else tna(found[1]), text)
    text = re.sub(
        r"struct target_headers_t \{.*?\n\}\n|(?:control LeavingDeparser|parser CopyParser).*?\n\}\n",
        "",
        text,
        flags=re.DOTALL,
    )
    text = (
        text.replace("target_headers_t", "headers_t")
        .replace("hdr.frame", "hdr")
        .replace("../shared/", "shared/")
    )
    return re.sub(r"@pa_container_size.*\n", "", text)


def source(name: str) -> str:
    """Write a whole program: p4/tna's with v1model's architecture, parser and egress around it."""
    passes = PASSES[name]
    head, ingress = re.split(r"(?=^control NetsumIngress)", tna("netsum.p4"), flags=re.MULTILINE)
    theirs = (P4 / "v1model" / "netsum.p4").read_text().partition("control NetsumIngress")[2]
    egress = theirs[theirs.index("control NetsumEgress") :].replace("TreeParser()", "TargetParser()")
    head = head[head.index('#include "shared/constants.p4"') :]
    ours = '#include "v1model/shim.p4"\n#define LANE_FIELD(i) int<32> lane_##i;\n#include "shared/lanes.p4"\n'
    head = head.replace('#include "shared/lanes.p4"\n', ours)
    target = (P4 / "v1model" / "target.p4").read_text()
    ingress = ingress[ingress.index("    ArriveFromTarget") : ingress.index("control NetsumEgress")]
    ingress = re.sub(r"arrive\.apply\(.*?\)", "arrive.apply(hdr, meta, standard)", ingress)
    ingress = re.sub(r"leave\.apply\(.*?\)", "leave.apply(meta, standard)", ingress)
    if passes > 1:
        head, target, ingress = with_passes(head, target, ingress)
    # In egress v1model has its own way to the one of a group.
    head = re.sub(r"control AddressCopy.*?\n\}\n", "", head, flags=re.DOTALL)
    signature = theirs[: theirs.index("{")]
    ingress = re.sub(r"(?<!\.)\bmeta\b", "target.shared", ingress)
    ingress = re.sub(r" *worker_bitmap_t header_only = 0;.*\n", "", ingress).replace(
        "header_only", "target.header_only"
    )
    header_only = '#include "v1model/header_only.p4"\n'
    return (
        f"#include <core.p4>\n#include <v1model.p4>\n{head}{target}{header_only}"
        f"control NetsumIngress{signature}{{\n{ingress}{egress}"
    )


def with_passes(head: str, target: str, ingress: str) -> tuple[str, str, str]:
    """Put in what passes need: the header, the parser's way to it, and arrivals that are none."""
    header = re.search(r"header pass_h \{.*?\n\}\n", head, re.DOTALL)
    assert header is not None
    headers = (P4 / "shared/headers.p4").read_text()
    headers = headers.replace("struct headers_t {", header[0] + "struct headers_t {\n    pass_h pass;")
    ports = f"const port_t PASS_PORT = {RECIRCULATION_PORT};\n"
    bytes_of_all = "#undef ALL_LANES_BYTES\n#define ALL_LANES_BYTES (LANES_BYTES * PASSES)\n"
    head = head.replace(header[0], "")
    head = head.replace('#include "shared/headers.p4"\n', bytes_of_all + ports + headers)
    head = head.replace(
        "frame.apply(packet, hdr, meta, ingress_port)", "single.apply(packet, hdr, meta, ingress_port)"
    )
    head = head.replace("PacketParser() frame;", "PacketParser() single;")
    # As v1model's headers have the pass among them, it goes with them.
    head = head.replace("control NextPass(inout pass_h pass, ", "control NextPass(")
    before, control, after = re.split(r"(control NextPass.*?\n\}\n)", head, flags=re.DOTALL)
    head = before + re.sub(r"(?<![\w.])pass\.", "hdr.pass.", control) + after
    head = head.replace("next_pass.apply(hdr.pass, hdr, meta)", "next_pass.apply(hdr, meta)")
    target = target.replace("PacketParser() frame;", "ArrivingParser() frame;").replace(
        "packet.emit(hdr.packet_in);", "packet.emit(hdr.packet_in);\n        packet.emit(hdr.pass);"
    )
    again = """bit<9> came_from = meta.ingress_port;
        bool well_formed = meta.well_formed;
        arrive.apply(hdr, meta, standard);
        if (hdr.pass.isValid()) {
            meta.ingress_port = came_from;
            meta.well_formed = well_formed;
        }
"""
    return head, target, ingress.replace("arrive.apply(hdr, meta, standard);\n", again)


def stamp() -> str:
    """Hash the sources of the compiled programs, without comments."""
    total = hashlib.sha256()
    for name in PASSES:
        total.update(COMMENT.sub("", source(name)).encode())
    for path in sorted([*(P4 / "shared").glob("*.p4"), *(P4 / "v1model").glob("*.p4")]):
        total.update(COMMENT.sub("", path.read_text(encoding="utf-8")).encode())
    return total.hexdigest() + "\n"


def without_positions(node: Any) -> Any:
    """Take out of the JSON where each thing stands in the sources."""
    if isinstance(node, dict):
        return {
            key: without_positions(value)
            for key, value in node.items()
            if key not in ("source_info", "program")
        }
    return [without_positions(value) for value in node] if isinstance(node, list) else node


def main() -> int:
    """Compile them, or those that are named, into the files beside this one."""
    names = sys.argv[1:] or list(PASSES)
    for name in names:
        passes = PASSES[name]
        program, p4info = files(name)
        with tempfile.TemporaryDirectory() as folder:
            written, compiled = Path(folder, "tna_logic.p4"), Path(folder, "tna_logic.json")
            written.write_text(source(name))
            command = [
                "p4c-bm2-ss",
                "--std",
                "p4-16",
                "-I",
                str(P4),
                "-D",
                f"LANES={LANES}",
                "-D",
                f"PASSES={passes}",
                "-D",
                f"TREE={int(name in IN_TREES)}",
                "-D",
                "QUORUM_WITHOUT_LANES",
            ]
            command += ["--p4runtime-files", str(p4info), "-o", str(compiled), str(written)]
            try:
                subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
            except FileNotFoundError:
                print(
                    "p4c-bm2-ss is not on PATH: install p4c (https://github.com/p4lang/p4c)", file=sys.stderr
                )
                return 1
            document = without_positions(json.loads(compiled.read_text()))
        program.write_text(json.dumps(document, separators=(",", ":")) + "\n")
        subprocess.run(
            [sys.executable, str(P4 / "build.py"), "--describe", str(p4info)], check=True, timeout=60
        )
    if names == list(PASSES):
        STAMP.write_text(stamp())
    return 0


if __name__ == "__main__":
    sys.exit(main())
