"""Write ``register_includes/reg.h`` of Tofino's open-source ASIC model, which published copies of its sources lack (over 4 MiB).

It has structures of registers in place, and macros for the addresses of those that are no arrays:
``python -m tests.dataplane.tofino_model_header --help``.
"""

import argparse
import pickle
import re
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

TOPS = {"tofino": "tofino", "jbay": "jbay_reg"}
"""The address map of the whole chip."""
STRIDED = "template <typename T, unsigned N> struct Strided : T { volatile uint8_t rest[N - sizeof(T)]; };"


class Header:
    """A written definition; an object of the schema has a name, an offset in bytes, and a count for each dimension."""

    def __init__(self) -> None:
        self.lines = [STRIDED]
        self._names: dict[int, str] = {}
        self._written: set[str] = set()

    def structure(self, part: Any) -> str:
        """Write the structure of an address map or group, after those in it; return its name."""
        name = self._names.setdefault(id(part), self._name(part))
        if name in self._written:
            return name
        self._written.add(name)
        fields, at = [], 0
        for one in members(part):
            if one.offset < at:  # Groups may have their registers between those of others.
                fields = self._overlaid(part)
                break
            fields.append(f"  {gap(at, one.offset)}{self._field(one)};")
            at = one.offset + stride(one) * prod(one.count)
        check = f'static_assert(sizeof({name}) == {size(part):#x}, "");'
        self.lines.append(
            "\n".join([f"struct {name} {{", *fields, "};", check, f"typedef {name} *PTR_{name};"])
        )
        return name

    def addresses(self, part: Any, path: str, base: int) -> None:
        """Write the macros of an address map; of pipes, those of the first."""
        for one in members(part):
            name, address = f"{path}_{one.name}", base + one.offset
            for suffix, value in (
                ("address", address),
                ("byte_address", address),
                ("array_count", prod(one.count)),
                ("array_element_size", stride(one)),
            ):
                self.lines.append(f"#define {name}_{suffix} {value:#x}ull")
            if inner(one) is not None and (prod(one.count) == 1 or one.name == "pipes"):
                self.addresses(inner(one), name, address)

    def _overlaid(self, part: Any) -> list[str]:
        return [
            "  union {",
            *(f"    struct {{ {gap(0, one.offset)}{self._field(one)}; }};" for one in members(part)),
            "  };",
        ]

    def _name(self, part: Any) -> str:
        name: str = part.name[0].upper() + part.name[1:]
        return f"Group{len(self._names)}_{name}" if hasattr(part, "offset") else name

    def _field(self, one: Any) -> str:
        several = "".join(f"[{count}]" for count in one.count) if prod(one.count) > 1 else ""
        part = inner(one)
        if part is None:
            words = stride(one) // 4
            return f"volatile uint32_t {one.name}{several}{f'[{words}]' if words > 1 else ''}"
        kind = self.structure(part)
        if stride(one) > size(part):
            kind = f"Strided<{kind}, {stride(one):#x}>"
        return f"{kind} {one.name}{several}"


def gap(begin: int, end: int) -> str:
    """Write what stands between two registers."""
    return f"volatile uint8_t before_{end:x}[{end - begin:#x}]; " if end > begin else ""


def members(part: Any) -> Iterator[Any]:
    """Return the objects of an address map, by offset."""
    return iter(sorted(part.objs, key=lambda one: int(one.offset)))


def inner(one: Any) -> Any:
    """Return the members of an instance or group; None for a register."""
    return one if hasattr(one, "objs") else getattr(one, "map", None)


def stride(one: Any) -> int:
    """Return how many bytes there are from one element to the next."""
    part = inner(one)
    return (one.width + 31) // 32 * 4 if part is None else int(one.stride or size(part))


def size(part: Any) -> int:
    """Return how many bytes an address map takes."""
    return max((one.offset + stride(one) * prod(one.count) for one in part.objs), default=0)


def main() -> int:
    """Write register_includes/reg.h of the ASIC model."""
    options = argparse.ArgumentParser(
        prog="python -m tests.dataplane.tofino_model_header", description=main.__doc__
    )
    options.add_argument("assembler", type=Path, help="backends/tofino/bf-asm of p4c's sources")
    options.add_argument("chip", choices=TOPS, help="jbay is Tofino 2")
    options.add_argument("utils", type=Path, help="the model's register_utils.h for the chip")
    options.add_argument("out", type=Path)
    chosen = options.parse_args()
    sys.path.insert(0, str(chosen.assembler / "walle"))  # the schema's classes
    schema = chosen.assembler / chosen.chip / "chip.schema"
    try:
        registers = pickle.loads(schema.read_bytes(), encoding="latin1")["regs"]
        utils = chosen.utils.read_text(encoding="utf-8")
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    header = Header()
    name = TOPS[chosen.chip]
    header.structure(registers[name])
    header.addresses(registers[name], name, 0)
    # Functions of the model's own tests set fields; nothing of the model calls them.
    setters = sorted(set(re.findall(r"(?<!do_)\bsetp_\w+", utils)))
    header.lines += [f"#define {setter}(at, value) ((void) (at), (void) (value))" for setter in setters]
    guard = ["#ifndef REG_H", "#define REG_H", "#include <cstdint>"]
    chosen.out.write_text("\n".join([*guard, *header.lines, "#endif", ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
