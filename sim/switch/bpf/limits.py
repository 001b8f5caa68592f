"""Features of a program that XDP lacks, found before any code is made: one sentence each, with its place."""

from collections.abc import Iterator

from sim.switch import ir
from sim.switch.switch_errors import UnsupportedProgramError

_PRIMITIVES = {
    "generate_digest": "a digest",
    "clone_ingress_pkt_to_egress": "a clone",
    "clone_egress_pkt_to_egress": "a clone",
    "resubmit": "resubmission",
    "recirculate": "recirculation",
    "execute_meter": "a meter",
    "modify_field_rng_uniform": "a random number",
    "truncate": "truncation",
}


def _at(place: str) -> str:
    return f" at {place}" if place else ""


def _found(program: ir.Program) -> Iterator[str]:
    for action in program.actions.values():
        for position, primitive in enumerate(action.primitives):
            if primitive.op in _PRIMITIVES:
                yield f"{_PRIMITIVES[primitive.op]} in action {action.name}{_at(primitive.place)}"
            last = primitive.args[-1] if primitive.args else None
            if primitive.op.startswith("_jump") and isinstance(last, ir.Const) and last.value <= position:
                yield f"a loop in action {action.name}{_at(primitive.place)}"
    for header in program.headers.values():
        if header.type.varbit is not None:
            yield f"the varbit field {header.name}.{header.type.varbit.name}"
    for table in program.tables.values():
        if table.profile is not None:
            yield f"the action profile {table.profile} of table {table.name}{_at(table.place)}"
        if table.direct_meter is not None:
            yield f"the meter of table {table.name}{_at(table.place)}"
    for name in program.vsets:
        yield f"the value set {name}"
    for calculation in program.calculations.values():
        if calculation.payload:
            yield f"the payload in the checksum {calculation.name}"


def check_program(program: ir.Program) -> None:
    """Raise `UnsupportedProgramError` if the program has what XDP cannot do."""
    problems = list(dict.fromkeys(f"{what}" for what in _found(program)))
    if problems:
        raise UnsupportedProgramError(problems, program.path, "XDP")
