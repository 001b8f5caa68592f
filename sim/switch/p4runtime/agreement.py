"""Whether a P4Info and a compiled program are of the same source."""

from dataclasses import replace
from hashlib import sha256

from sim.switch import ir
from sim.switch.p4runtime.catalog import Catalog, Field, KeyField, MatchKind, Table
from sim.switch.p4runtime.status_errors import P4RuntimeError, invalid

_COMPILED_KINDS = {MatchKind.OPTIONAL: ("optional", "ternary"), MatchKind.EXACT: ("exact", "valid")}


def reconcile(catalog: Catalog, program: ir.Program) -> None:
    """Refuse a P4Info that is not the program's, and take out of the catalog the objects that the compiler left out.

    Compilers drop tables and externs that cannot be reached, which stay in the P4Info.

    Raises P4RuntimeError: INVALID_ARGUMENT: the program has an object that the P4Info has not, or that differs there.
    """
    _name_digests(catalog, program)
    for objects, direct, compiled in (
        (catalog.tables, {}, set(program.tables)),
        (catalog.profiles, {}, set(program.profiles)),
        (catalog.counters, catalog.direct_counters, {each.name for each in program.counters.values()}),
        (catalog.meters, catalog.direct_meters, set(program.meters)),
        (catalog.registers, {}, set(program.registers)),
        (catalog.value_sets, {}, set(program.vsets)),
        (catalog.digests, {}, {name for name, _ in program.digests.values()}),
    ):
        described = {each.name for each in (*objects.values(), *direct.values())}
        for name in sorted(compiled - described):
            # Objects that the compiler made by itself are in no control, so their names have no dot.
            if "." in name:
                raise _disagreement(f"the P4Info does not have the program's {name}")
        for identifier in [number for number, each in objects.items() if each.name not in compiled]:
            del objects[identifier]
    for table in catalog.tables.values():
        _check_table(table, catalog, program)
    for arrays, sizes in (
        (catalog.counters, {each.name: each.size for each in program.counters.values()}),
        (catalog.meters, {each.name: each.size for each in program.meters.values()}),
        (catalog.registers, {each.name: each.size for each in program.registers.values()}),
    ):
        for array in arrays.values():
            if array.size != sizes[array.name]:
                raise _disagreement(
                    f"{array.name} has {sizes[array.name]} cells, not {array.size} as in the P4Info"
                )
    for register in catalog.registers.values():
        if register.bitwidth != program.registers[register.name].width:
            raise _disagreement(f"cells of {register.name} are not as wide as in the P4Info")


def _name_digests(catalog: Catalog, program: ir.Program) -> None:
    """Give digests the names they have in the program.

    The compiler numbers digests without a type of their own, such as a tuple, apart in the P4Info and in the program.
    """
    described = {each.name for each in catalog.digests.values()}
    compiled = [name for name, _ in program.digests.values()]
    nameless = [each for each in catalog.digests.values() if each.name not in compiled]
    unnamed = [name for name in compiled if name not in described]
    if len(nameless) == len(unnamed):
        for digest, name in zip(nameless, unnamed, strict=True):
            catalog.digests[digest.id] = replace(digest, name=name)


def _check_table(table: Table, catalog: Catalog, program: ir.Program) -> None:
    compiled = program.tables[table.name]
    if len(table.key) != len(compiled.key) or not all(map(_same_field, table.key, compiled.key)):
        raise _disagreement(f"the key of {table.name} differs from the P4Info")
    actions = {program.actions[number].name: program.actions[number] for number in compiled.actions}
    for identifier in table.scopes:
        action = catalog.actions.get(identifier)
        if action is None or action.name not in actions:
            raise _disagreement(f"the actions of {table.name} differ from the P4Info")
        widths = [width for _, width in actions[action.name].params]
        if len(widths) != len(action.params) or not all(map(_same_width, action.params, widths)):
            raise _disagreement(f"the parameters of {action.name} differ from the P4Info")
    if bool(table.profile_id) != (compiled.profile is not None):
        raise _disagreement(f"{table.name} has an action profile in one, but not in the other")


def _same_field(field: KeyField, compiled: ir.KeyField) -> bool:
    kinds = _COMPILED_KINDS.get(field.kind, (field.kind.value,))
    return compiled.kind in kinds and _same_width(field, compiled.width)


def _same_width(field: Field, width: int) -> bool:
    return field.translated or field.bitwidth in (0, width)


def _disagreement(what: str) -> P4RuntimeError:
    return invalid(
        f"P4Info and device configuration are not of the same program: {what}; "
        "give the BMv2 JSON and the P4Info of one run of the compiler"
    )


def counting_hits(catalog: Catalog, program: ir.Program) -> ir.Program:
    """Make the program count the hits of entries of tables with idle time-out, from which idle entries are found."""
    ageing = {table.name for table in catalog.tables.values() if table.ageing}
    if not ageing:
        return program
    controls = [
        replace(
            control,
            tables={
                name: replace(table, with_counters=True) if name in ageing else table
                for name, table in control.tables.items()
            },
        )
        for control in (program.ingress, program.egress)
    ]
    # Other code than that of the program as it is, so it must not share a place in the cache.
    fingerprint = sha256("\n".join([program.fingerprint, "hits", *sorted(ageing)]).encode()).hexdigest()
    return replace(program, ingress=controls[0], egress=controls[1], fingerprint=fingerprint)
