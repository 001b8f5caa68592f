"""The decisions of Tofino's program as a v1model program, so that the tests here can run them: no chip, no ASIC model.

``p4/tna/slot.p4``, ``lane.p4`` and the ingress of ``netsum.p4`` are taken as they stand; only TNA's externs are written
otherwise. A register action becomes what TNA says it is: read the cell, run the body, write the cell. What this
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
"""Those for switches in a tree."""
RECIRCULATION_PORT = 68
STAMP = HERE / "tna_logic.sha256"
COMPILE_TIMEOUT_S = 300
COMMENT = re.compile(r"[ \t]*//.*")

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
    """Tell how many bits a register of this type has."""
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


def source(name: str) -> str:
    """Write a whole program."""
    passes = PASSES[name]
    read = {
        part: (P4 / part).read_text()
        for part in ("tna/lane.p4", "tna/slot.p4", "tna/tree.p4", "tna/netsum.p4", "v1model/netsum.p4")
    }
    ours = read["v1model/netsum.p4"]
    head, ingress, egress = re.split(r"(?=^control Netsum)", ours, flags=re.MULTILINE)
    head = head.replace('#include "lane.p4"\n', without_externs(read["tna/lane.p4"]))
    head = head.replace('#include "lanes.p4"\n', '#include "tna/lanes.p4"\n')
    head = head.replace('#include "slot.p4"\n', without_externs(read["tna/slot.p4"]))
    head = head.replace('#include "tree_outcome.p4"', '#include "tna/tree_outcome.p4"')
    if name in IN_TREES:
        head = head.replace('#include "tree.p4"\n', without_externs(read["tna/tree.p4"]))
    head = head.replace('"../shared/', '"shared/').replace('#include "shim.p4"', '#include "v1model/shim.p4"')
    head = head.replace('#include "target.p4"', '#include "v1model/target.p4"')
    head = re.sub(r'#include "(tree\.p4|quorum|shard)', r'#include "v1model/\1', head)
    theirs = re.split(r"(?=^control Netsum)", read["tna/netsum.p4"], flags=re.MULTILINE)[1]
    body = theirs[theirs.index("    ArriveFromTarget") :].replace("hdr.frame", "hdr")
    body = re.sub(r"arrive\.apply\(.*?\)", "arrive.apply(hdr, meta, standard)", body)
    body = re.sub(r"leave\.apply\(.*?\)", "leave.apply(meta, standard)", body)
    if passes > 1:
        head, body = with_passes(head, body)
    body = body.replace("IS_FURTHER_PASS", "hdr.pass.isValid()" if passes > 1 else "false")
    body = re.sub(r"(?<!\.)\bmeta\b", "target.shared", body)
    egress = egress.replace("V1Switch(TreeParser()", "V1Switch(TargetParser()")
    return head + ingress[: ingress.index("    ArriveFromTarget")] + body + egress


def with_passes(head: str, body: str) -> tuple[str, str]:
    """Put in what passes need: the header, the parser's way to it, and arrivals that are none."""
    begin, control, rest = (P4 / "tna/passes.p4").read_text().partition("#define ADD_AGAIN")
    headers = (P4 / "shared/headers.p4").read_text()
    headers = headers.replace("struct headers_t {", "struct headers_t {\n    pass_h pass;")
    target = (P4 / "v1model/target.p4").read_text()
    parser = (P4 / "tna/target.p4").read_text().partition("advance(PORT_METADATA_SIZE);\n#if PASSES > 1\n")[2]
    states = parser.partition("#endif")[0].replace("intrinsic.", "standard.").replace("hdr.frame", "hdr")
    states = re.sub(r"\bmeta\b", "target.shared", states)
    target = target.replace("        frame.apply", states + "        frame.apply")
    target = target.replace(
        "packet.emit(hdr.packet_in);", "packet.emit(hdr.packet_in);\n        packet.emit(hdr.pass);"
    )
    bytes_of_all = "#undef ALL_LANES_BYTES\n#define ALL_LANES_BYTES (LANES_BYTES * PASSES)\n"
    head = head.replace('#include "shared/headers.p4"\n', bytes_of_all + begin + headers)
    control = re.sub(r"(?<![\w.])pass\.", "hdr.pass.", control + rest).replace("inout pass_h pass, ", "")
    head = head.replace('#include "v1model/target.p4"\n', control + target)
    again = """bit<9> came_from = meta.ingress_port;
        bool well_formed = meta.well_formed;
        arrive.apply(hdr, meta, standard);
        if (hdr.pass.isValid()) {
            meta.ingress_port = came_from;
            meta.well_formed = well_formed;
        }
"""
    body = body.replace("next_pass.apply(hdr.pass, hdr, meta)", "next_pass.apply(hdr, meta)")
    return head, body.replace("arrive.apply(hdr, meta, standard);\n", again)


def stamp() -> str:
    """Hash what the compiled programs depend on, without comments."""
    total = hashlib.sha256()
    for name in PASSES:
        total.update(COMMENT.sub("", source(name)).encode())
    others = P4 / "tna" / "tree_outcome.p4"
    for path in sorted([*(P4 / "shared").glob("*.p4"), *(P4 / "v1model").glob("*.p4"), others]):
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
                f"QUORUM={int(name not in IN_TREES)}",
            ]
            command += ["-D", f"RECIRCULATION_PORT={RECIRCULATION_PORT}", "-D__TARGET_TOFINO__=1"]
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
    if names == list(PASSES):
        STAMP.write_text(stamp())
    return 0


if __name__ == "__main__":
    sys.exit(main())
