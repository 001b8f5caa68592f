"""An action and its arguments, as the words that table entries and profile members hold."""

from sim.switch import ir
from sim.switch.switch_errors import EntryError, UnknownNameError
from sim.switch.table_layout import split, words


def find_action(program: ir.Program, among: tuple[int, ...], name: str, owner: str) -> ir.Action:
    """Return the action `name` of a table, or raise `UnknownNameError`."""
    for number in among:
        if program.actions[number].name == name:
            return program.actions[number]
    names = ", ".join(sorted({program.actions[n].name for n in among}))
    raise UnknownNameError(f"table {owner} has no action {name!r}; its actions are {names}")


def pack_action(action: ir.Action, params: tuple[int, ...]) -> list[int]:
    """Return the words of an entry: the action's number and its arguments.

    Raises EntryError if there are more or fewer arguments than the action takes, or one does not fit.
    """
    if len(params) != len(action.params):
        raise EntryError(f"action {action.name} takes {len(action.params)} arguments, not {len(params)}")
    packed = [action.id]
    for (name, width), value in zip(action.params, params, strict=True):
        if not 0 <= value < 1 << width:
            raise EntryError(
                f"argument {name} of action {action.name} is {value}, not an integer of {width} bits"
            )
        packed.extend(split(value, words(width)))
    return packed
