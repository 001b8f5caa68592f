"""How a table's memory looks: shared by the code that searches it and the Python that fills it.

Exact tables are hash tables of rows ``key words, entry + 1``, linear probing, zero marking an empty row. All others are rows in
the order of precedence: ``value words, mask words, low and high words of each range field, entry``. An entry is
``action, parameter words``; entry 0 is the default. A key is one number, first field most significant.
"""

from dataclasses import dataclass

from sim.switch import ir

MIX = 0x9E3779B97F4A7C15
TOMBSTONE = (1 << 64) - 1  # in place of a deleted entry's number
_M64 = (1 << 64) - 1


def words(width: int) -> int:
    """Return how many 64-bit words hold `width` bits."""
    return (width + 63) // 64


def split(value: int, count: int) -> list[int]:
    """Return the `count` 64-bit words of a number, least significant first."""
    return [value >> (64 * n) & _M64 for n in range(count)]


def action_words(program: ir.Program, actions: tuple[int, ...]) -> int:
    """Return the size of an entry that can hold any of `actions` with its parameters."""
    return 1 + max((sum(words(w) for _, w in program.actions[a].params) for a in actions), default=0)


def member_words(program: ir.Program, profile: str) -> int:
    """Return the size of an action profile's member: enough for every action of the tables that use it."""
    return max(action_words(program, t.actions) for t in program.tables.values() if t.profile == profile)


def mix(key: tuple[int, ...]) -> int:
    """Return the hash of a key's words; the machine code computes the same."""
    value = 0
    for word in key:
        value = ((value ^ word) * MIX) & _M64
        value ^= value >> 32
    return value


@dataclass(frozen=True)
class TableShape:
    """The sizes that code and Python must agree on."""

    hashed: bool  # Whether the table is a hash table.
    # key_words, entry_words, row_words: 64-bit words of a key (without range fields), an entry, a row.
    key_words: int
    entry_words: int
    row_words: int
    ranges: tuple[int, ...]  # Positions of the range fields in the key.
    indirect: bool  # Whether entries name members or groups of an action profile.

    @staticmethod
    def of(program: ir.Program, table: ir.Table) -> "TableShape":
        """Return the shape of a table of the program."""
        hashed = all(k.kind in ("exact", "valid") for k in table.key)
        ranges = tuple(n for n, k in enumerate(table.key) if k.kind == "range")
        key = words(sum(k.width for k in table.key if k.kind != "range"))
        span = 2 * sum(words(table.key[n].width) for n in ranges)
        row = key + 1 if hashed else 2 * key + span + 1
        indirect = table.profile is not None
        entry = 2 if indirect else action_words(program, table.actions)
        return TableShape(hashed, key, entry, row, ranges, indirect)
