"""LLVM: from a module's text to callable code, kept as object files between processes.

The cache key holds everything that the code depends on: the program, the engine's own sources, llvmlite, the processor.
Files are written under a temporary name and renamed, and carry a checksum, so that concurrent writers and torn files do no
harm.
"""

import ctypes
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding

from netsum_common.machine_objects import host_target, load_code
from netsum_common.sources import sources_stamp
from sim.switch import ir
from sim.switch.codegen.module import write_module

_MAGIC = b"netsum-object-1\n"


class Machine:
    """Compiled code of one program; `run`, at `address`, takes the context's address and returns a status."""

    def __init__(self, code: bytes, *, cached: bool) -> None:
        self.code = code  # An object file.
        self.cached = cached
        self._engine, self.address = load_code(code)
        self.run: Callable[[int], int] = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.address)


def default_cache_dir() -> Path:
    """Return where object code is kept: ``$NETSUM_CACHE_DIR``, else ``netsum`` in the user's cache folder."""
    named = os.environ.get("NETSUM_CACHE_DIR")
    return Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netsum")


_target_machine = functools.cache(host_target)


@functools.cache
def _engine_fingerprint() -> str:
    digest = hashlib.sha256()
    for part in (
        sources_stamp(Path(__file__)),
        llvmlite.__version__,
        binding.get_default_triple(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _optimize(module: Any) -> None:
    options = binding.create_pipeline_tuning_options(speed_level=1)
    options.slp_vectorization = False
    options.loop_vectorization = True
    options.loop_unrolling = False
    builder = binding.create_pass_builder(_target_machine(), options)
    builder.getModulePassManager().run(module, builder)


def _compile(program: ir.Program) -> bytes:
    module = binding.parse_assembly(write_module(program))
    module.triple = binding.get_default_triple()
    module.data_layout = str(_target_machine().target_data)
    _optimize(module)
    return bytes(_target_machine().emit_object(module))


def read_object(path: Path) -> bytes | None:
    """Return object code that was kept; None if there is none, or it is torn."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + 32
    if (
        not content.startswith(_MAGIC)
        or hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]
    ):
        return None
    return content[start:]


def write_object(path: Path, code: bytes) -> None:
    """Keep object code; a cache that cannot be written is done without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(code).digest() + code)
        Path(temporary).replace(path)
    except OSError:
        return


def kept_object(
    name: str, cache_dir: str | os.PathLike[str] | None, make: Callable[[], bytes]
) -> tuple[bytes, bool]:
    """Return the object code of this name, made if it is not kept, and whether it was kept."""
    path = Path(cache_dir or default_cache_dir()) / "switch" / name
    code = read_object(path)
    if code is not None:
        return code, True
    code = make()
    write_object(path, code)
    return code, False


def compile_program(program: ir.Program, cache_dir: str | os.PathLike[str] | None = None) -> Machine:
    """Compile a program, or load it from the cache. `cache_dir`: where object code is kept; `default_cache_dir` if None."""
    _target_machine()
    key = hashlib.sha256((program.fingerprint + _engine_fingerprint()).encode()).hexdigest()
    code, cached = kept_object(f"{key}.o", cache_dir, lambda: _compile(program))
    return Machine(code, cached=cached)
