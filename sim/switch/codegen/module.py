"""The whole LLVM module of a program."""

from sim.switch import ir
from sim.switch.codegen.actions import write_actions
from sim.switch.codegen.deparser import write_deparser
from sim.switch.codegen.emit import Unit
from sim.switch.codegen.externs import write_meter_function
from sim.switch.codegen.hashing import write_hash_functions
from sim.switch.codegen.parser import write_parser
from sim.switch.codegen.pipeline import write_pipeline
from sim.switch.codegen.traffic import write_run
from sim.switch.switch_errors import UnsupportedProgramError


def write_module(program: ir.Program) -> str:
    """Return the LLVM IR of a program; its one exported function is ``run``.

    Raises UnsupportedProgramError if the program's parts do not fit together: a name that nothing has, an operand of the
    wrong kind.
    """
    try:
        return _write(program)
    except (LookupError, AssertionError, TypeError, ValueError, StopIteration) as error:
        what = f"malformed BMv2 JSON ({type(error).__name__}: {error})"
        raise UnsupportedProgramError([what], program.path) from error


def _write(program: ir.Program) -> str:
    unit = Unit(program)
    write_hash_functions(unit)
    write_meter_function(unit)
    write_actions(unit)
    write_parser(unit)
    write_pipeline(unit, program.ingress)
    write_pipeline(unit, program.egress)
    write_deparser(unit)
    write_run(unit)
    return str(unit.module)
