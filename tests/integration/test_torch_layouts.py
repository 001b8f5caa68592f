"""Every collective of c10d with every layout and type of tensors, beside the same computed in one process.

A case is one call at all ranks. It ends "right", with the values of the reference in the outputs and no other byte changed, or
it is refused in one sentence at every rank.
"""

import functools
import itertools
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist
from torch import Tensor

from tests.integration.torch_ranks import Ranks

pytestmark = pytest.mark.torch

FLOATS = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
)  # fmt: skip
WIDE_UNSIGNED = (torch.uint32, torch.uint64)
INTEGERS = (
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64, *WIDE_UNSIGNED
)  # fmt: skip
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
OPERATIONS = ("SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR")
TAKE_CONJUGATED = ("reduce", "reduce_scatter", "reduce_scatter_tensor", "gather")
"""The functions of PyTorch 2.13 that take conjugated tensors; others refuse them: "view_as_real doesn't work on …"."""
SENTINEL = 5
COLUMNS = 2


class Laid(NamedTuple):
    """A tensor in some layout, and the memory around it that no collective may change."""

    tensor: Tensor
    around: list[Tensor]


def values(dtype: torch.dtype, rank: int, part: int = 0, rows: int = 4) -> Tensor:
    """Return small numbers, which every type holds and which differ between ranks and parts."""
    numbers = (torch.arange(rows * COLUMNS) * (part + 1) + rank).view(rows, COLUMNS)
    if dtype == torch.bool:
        return numbers % 2 == 0
    if dtype in COMPLEX:
        return torch.complex((numbers % 3 + 1.0), (numbers % 2 - 1.0)).to(dtype)
    return (numbers % 3 + 1).to(dtype)


def plain(given: Tensor) -> Laid:
    return Laid(given.clone(), [])


def strided(given: Tensor) -> Laid:
    whole = torch.full((*given.shape, 3), SENTINEL).to(given.dtype)
    whole[..., 1] = given
    return Laid(whole[..., 1], [whole[..., 0], whole[..., 2]])


def transposed(given: Tensor) -> Laid:
    return Laid(given.t().contiguous().t(), [])


def offset(given: Tensor) -> Laid:
    whole = torch.full((given.shape[0] + 2, COLUMNS), SENTINEL).to(given.dtype)
    whole[1:-1] = given
    return Laid(whole[1:-1], [whole[:1], whole[-1:]])


def channels_last(given: Tensor) -> Laid:
    images = given.view(given.shape[0] // 2, 2, 2, 1)
    return Laid(images.clone(memory_format=torch.channels_last), [])


def expanded(given: Tensor) -> Laid:
    return Laid(given[:1].clone().expand(given.shape), [])


def overlapping(given: Tensor) -> Laid:
    memory = given.reshape(-1)[: given.shape[0] + 1].clone()
    return Laid(memory.as_strided(given.shape, (1, 1)), [])


def negated(given: Tensor) -> Laid:
    return Laid(torch._neg_view(-given), [])


def conjugated(given: Tensor) -> Laid:
    return Laid(given.conj().resolve_conj().conj(), [])


def of_no_dimension(given: Tensor) -> Laid:
    return Laid(given[0, 0].clone(), [])


def empty(given: Tensor) -> Laid:
    return Laid(given[:0].clone(), [])


LAYOUTS: tuple[Callable[[Tensor], Laid], ...] = (
    plain, strided, transposed, offset, channels_last, expanded, overlapping, negated, conjugated, of_no_dimension, empty
)  # fmt: skip


def has(layout: Callable[[Tensor], Laid], dtype: torch.dtype) -> bool:
    """Whether PyTorch has a layout for a type."""
    if layout is conjugated:
        return dtype in COMPLEX
    unsigned = (torch.bool, torch.uint8, torch.uint16, *WIDE_UNSIGNED)
    return layout is not negated or (dtype not in unsigned and dtype.itemsize > 1)


def contents(laid: Laid) -> Tensor:
    """Return the values of a tensor in plain memory."""
    return laid.tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def bits(tensor: Tensor) -> Tensor:
    """Return the values of a tensor as bytes."""
    return contents(Laid(tensor, [])).reshape(-1).view(torch.uint8)


def reduced(operation: str, tensors: list[Tensor]) -> Tensor:
    """Reduce tensors in this process."""
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        any_of = operation in ("SUM", "MAX", "BOR")
        combine = operator.or_ if any_of else operator.xor if operation == "BXOR" else operator.and_
        return functools.reduce(combine, tensors)
    wide = dtype if dtype in COMPLEX else torch.float64 if dtype in FLOATS else torch.int64
    wider = [each.to(wide) for each in tensors]
    if operation in ("BAND", "BOR", "BXOR"):
        combine = {"BAND": operator.and_, "BOR": operator.or_, "BXOR": operator.xor}[operation]
        return functools.reduce(combine, wider).to(dtype)
    stacked = torch.stack(wider)
    if operation == "MIN":
        return stacked.amin(0).to(dtype)
    if operation == "MAX":
        return stacked.amax(0).to(dtype)
    total = stacked.prod(0) if operation == "PRODUCT" else stacked.sum(0)
    if operation == "AVG":
        total = total / len(tensors) if dtype in FLOATS + COMPLEX else total // len(tensors)
    return total.to(dtype)


def is_defined(operation: str, dtype: torch.dtype) -> bool:
    """Whether netsum reduces a type with an operation; all else must be refused."""
    if dtype in COMPLEX:
        return operation in ("SUM", "AVG")
    if dtype in FLOATS:
        return operation in OPERATIONS[:5]
    return dtype not in WIDE_UNSIGNED and (dtype != torch.bool or operation != "AVG")


class Case(NamedTuple):
    """A call, the tensors that it is given, and the tensors that it is to write with their expected values."""

    name: str
    call: Callable[[], Any]
    given: list[Laid]
    written: list[tuple[Laid, Tensor]]
    defined: bool = True


def outcome_of(case: Case) -> str:
    """Return "right", the reason of a refusal, or a description of the error."""
    written = {id(laid.tensor) for laid, _ in case.written}
    untouched = [each for laid in case.given if id(laid.tensor) not in written for each in (laid.tensor,)]
    untouched += [each for laid in case.given + [laid for laid, _ in case.written] for each in laid.around]
    before = list(map(bits, untouched))
    try:
        done = case.call()
        for work in done if isinstance(done, list) else [done]:
            if hasattr(work, "wait"):
                work.wait()
    except (TypeError, ValueError, RuntimeError) as error:
        return f"refused: {type(error).__name__}: {str(error).splitlines()[0]}"
    for laid, wanted in case.written:
        got = laid.tensor
        # The sign of a complex zero changes where PyTorch negates it.
        exact = torch.equal(got, wanted) if got.is_complex() else torch.equal(bits(got), bits(wanted))
        if not exact and "AVG" in case.name and got.dtype in FLOATS:
            exact = torch.allclose(got.double(), wanted.double(), rtol=torch.finfo(got.dtype).eps)
        if not exact:
            return f"wrong: {got.tolist()} for {wanted.tolist()}"
    changed = [each for each, was in zip(untouched, before, strict=True) if not torch.equal(bits(each), was)]
    if changed:
        return f"wrong: {changed[0].tolist()} was written"
    return "right"


def reductions(rank: int, world: int) -> Iterator[Case]:
    # Every operation with every type in two layouts; every layout with a float, an integer and an operation of each way.
    pairs = [(layout, dtype) for layout in LAYOUTS[:2] for dtype in DTYPES]
    pairs += [(layout, dtype) for layout in LAYOUTS for dtype in (torch.float32, torch.bfloat16, torch.int16)]
    for (layout, dtype), operation in itertools.product(dict.fromkeys(pairs), OPERATIONS):
        if has(layout, dtype):
            yield from reductions_with(rank, world, layout, dtype, operation)
    for dtype in COMPLEX:
        for layout in LAYOUTS:
            yield from reductions_with(rank, world, layout, dtype, "SUM")


def reductions_with(
    rank: int, world: int, layout: Callable[[Tensor], Laid], dtype: torch.dtype, operation: str
) -> Iterator[Case]:
    name, defined = f"{operation} {layout.__name__} {dtype}", is_defined(operation, dtype)
    op = getattr(dist.ReduceOp, operation)
    empties = layout is empty
    every = [layout(values(dtype, each)) for each in range(world)]
    total = reduced(operation, list(map(contents, every))) if defined else contents(every[0])
    own = every[rank]
    yield Case(f"all_reduce {name}", lambda: dist.all_reduce(own.tensor, op), [], [(own, total)], defined)
    to_root = layout(values(dtype, rank))
    root = world - 1
    yield Case(
        f"reduce {name}",
        lambda: dist.reduce(to_root.tensor, root, op),
        [to_root],
        [(to_root, total if rank == root else contents(to_root))],
        defined,
    )
    if layout is of_no_dimension:
        return
    # Lists: a piece for each rank.
    pieces = [[layout(values(dtype, each, part)) for part in range(world)] for each in range(world)]
    share = [pieces[each][rank] for each in range(world)]
    wanted = reduced(operation, list(map(contents, share))) if defined else contents(share[0])
    output = layout(torch.zeros_like(values(dtype, rank)))
    yield Case(
        f"reduce_scatter {name}",
        lambda: dist.reduce_scatter(output.tensor, [each.tensor for each in pieces[rank]], op),
        pieces[rank],
        [(output, wanted)],
        defined,
    )
    wholes = [
        layout(torch.cat([values(dtype, each, part) for part in range(world)])) for each in range(world)
    ]
    share_of_whole = [contents(each).chunk(world)[rank] if not empties else contents(each) for each in wholes]
    wanted = reduced(operation, share_of_whole) if defined else share_of_whole[0]
    into = layout(torch.zeros_like(values(dtype, rank)))
    yield Case(
        f"reduce_scatter_tensor {name}",
        lambda: dist.reduce_scatter_tensor(into.tensor, wholes[rank].tensor, op),
        [wholes[rank]],
        [(into, wanted.view(into.tensor.shape))],
        defined,
    )
    if layout is conjugated or (dtype in COMPLEX and not defined):
        return  # PyTorch refuses it, and takes all later calls for coalesced ones.
    two = [[layout(values(dtype, each, part)) for part in range(2)] for each in range(world)]
    sums = [
        reduced(operation, [contents(each[part]) for each in two]) if defined else contents(two[0][part])
        for part in range(2)
    ]

    def together() -> Any:
        with dist._coalescing_manager(async_ops=True) as made:
            for each in two[rank]:
                dist.all_reduce(each.tensor, op)
        return made

    yield Case(f"coalesced {name}", together, [], list(zip(two[rank], sums, strict=True)), defined)


def movements(rank: int, world: int) -> Iterator[Case]:
    for layout, dtype in itertools.product(LAYOUTS, DTYPES):
        if has(layout, dtype):
            yield from movements_with(rank, world, layout, dtype)


def movements_with(
    rank: int, world: int, layout: Callable[[Tensor], Laid], dtype: torch.dtype
) -> Iterator[Case]:
    name = f"{layout.__name__} {dtype}"
    after, before, last = (rank + 1) % world, (rank - 1) % world, world - 1

    def blank(rows: int = 4) -> Laid:
        # Written in full: elements that share memory get one value.
        return layout(torch.zeros_like(values(dtype, rank, rows=rows)))

    def every(part: int = 0) -> list[Laid]:
        return [layout(values(dtype, each, part)) for each in range(world)]

    sent = every()
    yield Case(
        f"broadcast {name}",
        lambda: dist.broadcast(sent[rank].tensor, last),
        [],
        [(sent[rank], contents(sent[last]))],
    )
    gathered, given = [blank() for _ in range(world)], every()
    yield Case(
        f"all_gather {name}",
        lambda: dist.all_gather([each.tensor for each in gathered], given[rank].tensor),
        [given[rank]],
        [(each, contents(one)) for each, one in zip(gathered, given, strict=True)],
    )
    at_root, offered = [blank() for _ in range(world)], every()
    yield Case(
        f"gather {name}",
        lambda: dist.gather(
            offered[rank].tensor, [each.tensor for each in at_root] if rank == last else None, last
        ),
        [offered[rank]],
        [(each, contents(one)) for each, one in zip(at_root, offered, strict=True)] if rank == last else [],
    )
    mine, dealt = blank(), [layout(values(dtype, last, part)) for part in range(world)]
    yield Case(
        f"scatter {name}",
        lambda: dist.scatter(mine.tensor, [each.tensor for each in dealt] if rank == last else None, last),
        dealt,
        [(mine, contents(dealt[rank]))],
    )
    table = [[layout(values(dtype, each, part)) for part in range(world)] for each in range(world)]
    taken = [blank() for _ in range(world)]
    yield Case(
        f"all_to_all {name}",
        lambda: dist.all_to_all([each.tensor for each in taken], [each.tensor for each in table[rank]]),
        table[rank],
        [(each, contents(table[one][rank])) for one, each in enumerate(taken)],
    )
    received, on_the_way = blank(), every()

    def ring() -> Any:
        return [dist.isend(on_the_way[rank].tensor, after), dist.irecv(received.tensor, before)]

    yield Case(f"isend, irecv {name}", ring, [on_the_way[rank]], [(received, contents(on_the_way[before]))])
    batched, in_batch = blank(), every(1)

    def batch() -> Any:
        return dist.batch_isend_irecv([
            dist.P2POp(dist.isend, in_batch[rank].tensor, after),
            dist.P2POp(dist.irecv, batched.tensor, before),
        ])  # fmt: skip

    yield Case(f"batch_isend_irecv {name}", batch, [in_batch[rank]], [(batched, contents(in_batch[before]))])
    from_any, to_last = blank(), every(2)
    if rank in (0, last):
        call: Callable[[], Any] = functools.partial(dist.send, to_last[0].tensor, last)
        if rank == last:
            call = lambda: dist.recv(from_any.tensor) and None  # noqa: E731
        yield Case(
            f"send, recv of any {name}",
            call,
            [to_last[0]],
            [(from_any, contents(to_last[0]))] if rank == last else [],
        )
    if layout is not of_no_dimension:
        yield from movements_of_rows(rank, world, layout, dtype)


def movements_of_rows(
    rank: int, world: int, layout: Callable[[Tensor], Laid], dtype: torch.dtype
) -> Iterator[Case]:
    """Yield the calls that take one tensor for all ranks. Elements that share memory cannot hold all ranks' values."""
    name, several = f"{layout.__name__} {dtype}", layout not in (expanded, overlapping)
    takes = layout if several else plain
    given = [layout(values(dtype, each)) for each in range(world)]
    whole = takes(torch.zeros_like(values(dtype, rank, rows=4 * world)))
    yield Case(
        f"all_gather_into_tensor {name}",
        lambda: dist.all_gather_into_tensor(whole.tensor, given[rank].tensor),
        [given[rank]],
        [(whole, torch.cat(list(map(contents, given))).view(whole.tensor.shape))],
    )
    wholes = [
        layout(torch.cat([values(dtype, each, part) for part in range(world)])) for each in range(world)
    ]
    swapped = takes(torch.zeros_like(values(dtype, rank, rows=4 * world)))
    shares = [contents(each).chunk(world)[rank if each.tensor.numel() else 0] for each in wholes]
    yield Case(
        f"all_to_all_single {name}",
        lambda: dist.all_to_all_single(swapped.tensor, wholes[rank].tensor),
        [wholes[rank]],
        [(swapped, torch.cat(shares).view(swapped.tensor.shape))],
    )
    if layout in (channels_last, empty):
        return
    # Rank r gives each rank r + 1 rows.
    uneven = [layout(values(dtype, each, rows=(each + 1) * world)) for each in range(world)]
    gives = [rank + 1] * world, [each + 1 for each in range(world)]
    put = takes(torch.zeros_like(values(dtype, rank, rows=sum(gives[1]))))
    parts = [contents(each).split(one + 1)[rank] for one, each in enumerate(uneven)]
    yield Case(
        f"all_to_all_single uneven {name}",
        lambda: dist.all_to_all_single(put.tensor, uneven[rank].tensor, gives[1], gives[0]),
        [uneven[rank]],
        [(put, torch.cat(parts))],
    )


def outcomes(rank: int, world: int, which: str) -> dict[str, tuple[str, bool]]:
    """Return what became of each case, and whether it was to be right."""
    warnings.simplefilter("ignore")
    found = {}
    for case in globals()[which](rank, world):
        refused_by_pytorch = " conjugated " in case.name and case.name.split()[0] not in TAKE_CONJUGATED
        found[case.name] = outcome_of(case), case.defined and not refused_by_pytorch
    return found


@pytest.fixture(scope="module")
def two_ranks(torch_service: str) -> Iterator[Ranks]:
    with Ranks(2, {"NETSUM_CONTROLLER": torch_service}) as ranks:
        yield ranks


@pytest.mark.parametrize("which", ["reductions", "movements"])
@pytest.mark.parametrize("world", [2, 3])
def test_every_layout_gives_what_one_process_computes(
    which: str, world: int, request: pytest.FixtureRequest
) -> None:
    chosen: Ranks = request.getfixturevalue("ranks" if world == 3 else "two_ranks")
    found = chosen.run(outcomes, which)
    assert_right_or_refused(found)


def assert_right_or_refused(found: list[dict[str, tuple[str, bool]]]) -> None:
    count: Counter[str] = Counter()
    bad = []
    for name, (_, defined) in found[0].items():
        at_ranks = [each[name][0] for each in found if name in each]
        right = [each == "right" for each in at_ranks]
        refused = [each.startswith("refused") for each in at_ranks]
        count["right" if all(right) else "refused" if all(refused) else "wrong"] += 1
        if not (all(right) if defined else all(refused)):
            bad.append(f"{name}: {at_ranks}")
    print(dict(count))
    assert not bad, f"{len(bad)} of {len(found[0])}, {dict(count)}:\n" + "\n".join(bad[:40])
    assert count["right"] > 100
