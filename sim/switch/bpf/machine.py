"""LLVM for BPF: from a module's text to an object."""

from __future__ import annotations

import functools
import re
from typing import Any

from llvmlite import binding

from sim.switch.bpf.objects import BpfObject, read_object
from sim.switch.errors import UnsupportedProgramError

__all__ = ["compile_module"]

_WIDE = re.compile(r"= (mul|[us]div|[us]rem|shl|lshr|ashr)(?: \w+)* i(\d+) %\S+ (\S+)$")


@functools.cache
def _target_machine() -> Any:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple("bpfel")
    return target.create_target_machine(cpu="v4", features="+allows-misaligned-mem-access", opt=2)


def compile_module(text: str, path: str) -> BpfObject:
    """Compile a module.

    Raises
    ------
    UnsupportedProgramError
        It needs arithmetic that BPF does not have.
    """
    module = binding.parse_assembly(text)
    module.triple = "bpfel"
    module.data_layout = str(_target_machine().target_data)
    options = binding.create_pipeline_tuning_options(speed_level=1)
    options.slp_vectorization = options.loop_vectorization = options.loop_unrolling = False
    builder = binding.create_pass_builder(_target_machine(), options)
    builder.getModulePassManager().run(module, builder)
    for line in str(module).splitlines():
        found = _WIDE.search(line.partition(", !")[0].replace(",", ""))
        if (
            found
            and int(found[2]) > 64
            and (found[1] in ("mul",) or "div" in found[1] or "rem" in found[1] or found[3].startswith("%"))
        ):
            what = f"a calculation ({found[1]}) with {found[2]} bits, which XDP cannot do: at most 64"
            raise UnsupportedProgramError([what], path)
    return read_object(bytes(_target_machine().emit_object(module)))
