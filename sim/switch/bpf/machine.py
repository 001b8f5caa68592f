"""LLVM for BPF: from a module's text to an object, kept in files between processes.

LLVM runs in a process of its own: a feature that its `bpf` target lacks ends the process that asks for it.
"""

import hashlib
import os
import re
import subprocess
import sys
from typing import Any

import llvmlite
from llvmlite import binding

from sim.switch.bpf.objects import BpfObject, read_elf
from sim.switch.machine import kept_object
from sim.switch.switch_errors import UnsupportedProgramError

_WIDE = re.compile(r"= (mul|[us]div|[us]rem|shl|lshr|ashr)(?: \w+)* i(\d+) %\S+ (\S+)$")
_DEADLINE_S = 600
_LEVEL = 2  # Level of LLVM's optimizations.


def compile_module(text: str, path: str, cache_dir: str | os.PathLike[str] | None = None) -> BpfObject:
    """Compile a module, or load its object from the cache.

    Raises UnsupportedProgramError if it needs arithmetic that BPF does not have, or more than the 512 bytes of a BPF
    program's stack.
    """
    key = hashlib.sha256(f"{llvmlite.__version__} O{_LEVEL}\n{text}".encode()).hexdigest()
    code, _ = kept_object(f"{key}.bpf", cache_dir, lambda: _compiled(text, path))
    return read_elf(code)


def _compiled(text: str, path: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sim.switch.bpf.machine"],
        input=text.encode(), capture_output=True, timeout=_DEADLINE_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        said = next((line for line in lines if line.startswith("error: ")), lines[-1])
        what = said.removeprefix("error: ").removeprefix("<unknown>:0:0: ")
        raise UnsupportedProgramError([f"what LLVM's bpf target does not have ({what})"], path, "XDP")
    return done.stdout


def _target_machine() -> Any:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple("bpfel")
    return target.create_target_machine(cpu="v4", features="+allows-misaligned-mem-access", opt=2)


def _main() -> None:
    machine = _target_machine()
    module = binding.parse_assembly(sys.stdin.read())
    module.triple = "bpfel"
    module.data_layout = str(machine.target_data)
    options = binding.create_pipeline_tuning_options(speed_level=_LEVEL)
    options.slp_vectorization = options.loop_vectorization = options.loop_unrolling = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    for line in str(module).splitlines():
        found = _WIDE.search(line.partition(", !")[0].replace(",", ""))
        if found is None or int(found[2]) <= 64:
            continue
        if found[1] not in ("shl", "lshr", "ashr") or found[3].startswith("%"):
            sys.exit(f"error: a calculation ({found[1]}) with {found[2]} bits, of which BPF has at most 64")
    sys.stdout.buffer.write(bytes(machine.emit_object(module)))


if __name__ == "__main__":
    _main()
