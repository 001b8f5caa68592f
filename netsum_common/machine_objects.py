"""Object code for this machine's processor, loaded into this process."""

import contextlib
from typing import Any

from llvmlite import binding


def host_target() -> Any:
    """Return a new target machine for this processor."""
    # Newer llvmlite initializes by itself and refuses the call.
    with contextlib.suppress(RuntimeError):
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=1, jit=True
    )


def load_code(code: bytes) -> tuple[Any, int]:
    """Load a program's object code; return what keeps it, and the address of its function `run`."""
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(""), host_target()
    )  # The engine owns the target.
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine, engine.get_function_address("run")
