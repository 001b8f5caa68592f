"""Collectives of JAX through a switch, one process for each device of the CPU.

They work inside ``jax.jit``, ``grad``, ``vmap``, ``scan``, ``while_loop``, ``cond`` and ``checkpoint``, on XLA's own buffers and
in the order of the program, which XLA keeps. Trees are reduced leaf by leaf.
"""

import atexit
import contextlib
import dataclasses
import functools
import inspect
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from host_agent import meeting, session
from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives import Op
from host_agent.errors import ArrayError, MisuseError, UnsupportedTypeError
from host_agent.session import Session, check_reducible
from host_agent.torch.options import Options as Options
from netsum.extras import install_command

try:
    import jax
    from jax.extend.core import Primitive
    from jax.interpreters import batching, mlir
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"netsum.jax needs JAX: {install_command('jax')}", name="jax") from missing
try:
    from jax._src import core, dispatch, effects, ffi
    from jax._src.distributed import global_state
except ImportError as missing:
    raise ImportError(
        f"netsum.jax works with JAX 0.10 and not with {jax.__version__} ({missing}): {install_command('jax')}"
    ) from missing

Kind = Literal["allreduce", "reduce_scatter", "all_gather", "broadcast"]
Tree = Any

_TARGET: Final = "xla_buffer_python_cpu_callback"  # JAX's own call from XLA into Python, of `jax.experimental.buffer_callback`
_current: list[Session] = []
_meetings = 0


class _Collectives(effects.Effect):
    """The effect of all collectives: JAX keeps the order of calls that have it."""


_EFFECT: Final = _Collectives()
for _kinds in (
    effects.ordered_effects,
    effects.shardable_ordered_effects,  # A process has one device.
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _kinds.add_type(_Collectives)


def init(timeout_s: float = 300.0, options: Options | None = None) -> None:
    """Begin this process's part in the job; call it once, and `shutdown` at the end.

    Ranks meet by the coordinator of ``jax.distributed.initialize`` if the process has called it, else by RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT, as torchrun sets them; without any of these the process is alone.

    Parameters
    ----------
    timeout_s : float
        How long to wait for the others, here and in each collective.
    options : Options, optional
        How the ranks reduce; by default as NETSUM_EXACT and the other variables say.

    Raises
    ------
    MisuseError
        The process has several devices, or has begun already.
    JoinError
        There is no switch, or a rank did not come.
    """
    global _meetings
    if _current:
        raise MisuseError("netsum.jax.init was called before: call netsum.jax.shutdown first")
    if jax.local_device_count() != 1:
        raise MisuseError(
            f"netsum.jax: a rank is a process with one device, this one has {jax.local_device_count()}: start a process for "
            "each, and leave out --xla_force_host_platform_device_count and jax_num_cpu_devices"
        )
    _meetings += 1
    client = global_state.client
    if client is None:
        share, rank, size = meeting.meet(timeout_s)
    else:
        key, rank, size = f"netsum/{_meetings}", global_state.process_id, global_state.num_processes

        def share(text: str) -> str:
            if rank == 0:
                client.key_value_set(key, text)
            return str(client.blocking_key_value_get(key, int(timeout_s * 1000)))

    _current.append(session.begin(share, rank, size, name="jax", timeout_s=timeout_s, options=options))
    atexit.register(shutdown)


def shutdown() -> None:
    """Meet the other ranks and leave the job; the end of the program does it too."""
    atexit.unregister(shutdown)
    try:
        jax.effects_barrier()  # Calls that nobody has waited for yet.
    finally:
        while _current:
            _current.pop().close()


def install() -> None:
    """Let ``jax.lax.psum``, ``pmean``, ``pmax`` and ``pmin`` over all processes go through the switch, gradients too.

    At all ranks, in functions that are traced from now on. What the switch does not take (uint32, axes of some processes) stays
    on JAX's collectives, as does what the compiler inserts itself.

    Raises
    ------
    ImportError
        This version of JAX has other private names; `allreduce` works without them.
    """
    current_session()
    try:
        from jax._src.lax import parallel

        ops: dict[str, Op] = {"psum_p": "sum", "psum_invariant_p": "sum", "pmax_p": "max", "pmin_p": "min"}
        reductions = [(getattr(parallel, name), op) for name, op in ops.items()]
        found = [(each, op, each.abstract_eval, mlir._lowerings[each].rule) for each, op in reductions]
        groups_of = parallel._replica_groups
    except (AttributeError, ImportError, KeyError) as missing:
        raise ImportError(
            f"netsum.jax.install does not know the private names of JAX {jax.__version__} ({missing}): call netsum.jax.allreduce "
            f"in place of jax.lax.psum, or {install_command('jax')}"
        ) from missing
    for primitive, op, shape_of, lower in found:
        if getattr(shape_of, "func", None) is not _with_effect:  # Installed before.
            primitive.def_effectful_abstract_eval(functools.partial(_with_effect, shape_of, op))
            how = functools.partial(_lower_reduction, f"jax.lax.{primitive.name}", op, groups_of, lower)
            mlir.register_lowering(primitive, how, platform="cpu")
    jax.clear_caches()


def current_session() -> Session:
    """Return this process's part in the job."""
    if not _current:
        raise MisuseError("call netsum.jax.init first")
    return _current[0]


def rank() -> int:
    """Return this process's rank."""
    return current_session().rank


def size() -> int:
    """Return the number of ranks."""
    return current_session().size


def allreduce(tree: Tree, op: Op = "sum", *, label: str = "") -> Tree:
    """Reduce every array of a tree over all ranks; the results have the same bits everywhere.

    Its gradient is that of the sum of all ranks' losses, as that of ``jax.lax.psum`` is: "sum" and "mean" only.

    Parameters
    ----------
    tree : tree of arrays
        Of the same structure, shapes and types at all ranks.
    op : {"sum", "mean", "min", "max", "bor"}
        As for `netsum.Communicator.allreduce`; the result has the type of the array.
    label : str
        Text that the ranks must agree on; by default the file and line of the call.
    """
    return _call("allreduce", tree, op, label or _caller())


def reduce_scatter(tree: Tree, op: Op = "sum", *, label: str = "") -> Tree:
    """Reduce arrays, and keep this rank's part of the first dimension, which is a multiple of the number of ranks."""
    return _call("reduce_scatter", tree, op, label or _caller())


def all_gather(tree: Tree, *, label: str = "") -> Tree:
    """Stack the arrays of all ranks, in the order of the ranks."""
    return _call("all_gather", tree, "sum", label or _caller())


def broadcast(tree: Tree, *, label: str = "") -> Tree:
    """Return rank 0's arrays at every rank, for instance the first parameters of a model."""
    return _call("broadcast", tree, "sum", label or _caller())


def average_gradients(label: str = "gradients") -> Any:
    """Return an optax transformation that takes the mean of the ranks' gradients.

    Examples
    --------
    >>> optimizer = optax.chain(netsum.jax.average_gradients(), optax.adam(1e-3))  # doctest: +SKIP
    """
    import optax

    return optax.stateless(lambda updates, _: allreduce(updates, "mean", label=label))


def mean_of_micro_batches(
    gradient_of: Callable[[int], Tree], count: int, *, label: str = "micro-batches"
) -> Tree:
    """Return the mean gradient of a step's micro-batches: the same bits whichever ranks compute them, and however many there are.

    The exact sum is divided and rounded once. Not inside ``jax.jit``: `gradient_of` is what is compiled.

    Parameters
    ----------
    gradient_of : callable
        Takes the number of a micro-batch, below `count`; returns a tree of arrays of float16, bfloat16, float32 or float64.
    count : int
        Number of micro-batches of a step, of all ranks together.
    label : str
        Text that the ranks must agree on.
    """
    mine = range(rank(), count, size())
    gradient = gradient_of(mine[0]) if mine else jax.eval_shape(lambda: gradient_of(0))
    like, structure = jax.tree.flatten(gradient)
    totals = [Accumulator(each.shape, "float32" if _narrow(each.dtype) else each.dtype) for each in like]
    for index in mine:
        gradient = gradient if index == mine[0] else gradient_of(index)
        for total, array in zip(totals, jax.tree.leaves(gradient), strict=True):
            total.add(np.asarray(array).astype(total.dtype, copy=False))
    means = [
        current_session()
        .exact(
            total, "mean", label=f"{label}, array {number}", to=each.dtype.name if _narrow(each.dtype) else ""
        )
        .astype(each.dtype, copy=False)
        for number, (total, each) in enumerate(zip(totals, like, strict=True))
    ]
    return jax.tree.unflatten(structure, map(jax.numpy.asarray, means))


def _narrow(dtype: Any) -> bool:
    return bool(np.dtype(dtype).name == "bfloat16")


def _caller() -> str:
    """Return file and line of the call into this module."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _call(kind: Kind, tree: Tree, op: Op, label: str) -> Tree:
    """Make one call for all arrays of a tree."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    if not paths:
        return tree
    arrays = [jax.numpy.asarray(each) for _, each in paths]
    for array in arrays:
        if kind == "allreduce":
            check_reducible(array.dtype, op)
        if kind == "reduce_scatter" and (not array.shape or array.shape[0] % size()):
            raise ArrayError(
                f"{label}: reduce_scatter: expected a first dimension that {size()} ranks can share, got {array.shape}"
            )
    labels = tuple(label + jax.tree_util.keystr(path) for path, _ in paths)
    return jax.tree.unflatten(structure, _differentiable(kind, op, labels, arrays))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _differentiable(kind: Kind, op: Op, labels: tuple[str, ...], arrays: list[Any]) -> list[Any]:
    return list(_collective.bind(*arrays, kind=kind, op=op, labels=labels))


def _forward(kind: Kind, op: Op, labels: tuple[str, ...], arrays: list[Any]) -> tuple[list[Any], None]:
    return _differentiable(kind, op, labels, arrays), None


def _backward(
    kind: Kind, op: Op, labels: tuple[str, ...], _: None, cotangents: list[Any]
) -> tuple[list[Any]]:
    """Send cotangents the other way: the losses of all ranks are added, as by ``jax.lax.psum``."""
    if op not in ("sum", "mean"):
        raise MisuseError(f"{labels[0]}: {op} has no gradient in netsum.jax: only sum and mean have")
    back: Kind = {"reduce_scatter": "all_gather", "all_gather": "reduce_scatter"}.get(kind, "allreduce")  # type: ignore[assignment]
    given = [number for number, each in enumerate(cotangents) if each.dtype != jax.dtypes.float0]
    labels = tuple(f"{labels[number]}, gradient" for number in given)
    sums = _differentiable(back, op, labels, [cotangents[number] for number in given]) if given else []
    results = list(cotangents)
    for number, each in zip(given, sums, strict=True):
        if kind == "reduce_scatter":
            # Every rank has its part of the cotangent; "mean" divides by the number of ranks.
            each = each.reshape(-1, *each.shape[2:]) / (size() if op == "mean" else 1)
        elif kind == "all_gather":
            each = each[0]
        elif kind == "broadcast":
            each = each if rank() == 0 else jax.numpy.zeros_like(each)
        results[number] = each
    return (results,)


_differentiable.defvjp(_forward, _backward)


def _run(kind: Kind, op: Op, labels: Sequence[str], given: Sequence[Any], taken: Sequence[Any]) -> None:
    """Run the collectives of a call on XLA's buffers."""
    current = current_session()
    for label, source, target in zip(labels, given, taken, strict=True):
        array, out = np.asarray(source), np.asarray(target)
        if kind == "allreduce":
            current.allreduce(array, op, label=label, out=out)
        elif kind == "reduce_scatter":
            out[...] = current.reduce_scatter(array, op, label=label)
        elif kind == "all_gather":
            out[...] = current.all_gather(array, label=label)
        else:
            out[...] = current.broadcast(array, label=label)


_collective: Final = Primitive("netsum")
_collective.multiple_results = True
dispatch.simple_impl(_collective)


@_collective.def_effectful_abstract_eval
def _results(*arrays: Any, kind: Kind, **_: Any) -> Any:
    shape_of: dict[Kind, Callable[[Any], Any]] = {
        "reduce_scatter": lambda shape: (shape[0] // size(), *shape[1:]),
        "all_gather": lambda shape: (size(), *shape),
    }
    return [core.ShapedArray(shape_of.get(kind, tuple)(each.shape), each.dtype) for each in arrays], {_EFFECT}


def _lower(ctx: Any, *operands: Any, kind: Kind, op: Op, labels: Sequence[str]) -> Any:
    """Call `_run` from the compiled program; JAX's token of the order goes before the arrays."""
    count = len(operands)

    def call(_: Any, *buffers: Any) -> tuple[()]:
        _run(kind, op, labels, buffers[1 : 1 + count], buffers[2 + count :])
        return ()

    ctx.module_context.add_host_callback(call)
    index = np.uint64(len(ctx.module_context.host_callbacks) - 1)
    token = core.abstract_token
    inside = dataclasses.replace(ctx, avals_in=[token, *ctx.avals_in], avals_out=[token, *ctx.avals_out])
    rule = ffi.ffi_lowering(_TARGET, has_side_effect=True)
    after, *results = rule(inside, ctx.tokens_in.get(_EFFECT), *operands, index=index)
    ctx.set_tokens_out(mlir.TokenSet({_EFFECT: after}))
    return results


mlir.register_lowering(_collective, _lower, platform="cpu")


def _with_effect(shape_of: Callable[..., Any], op: Op, array: Any, *, axes: Any, **how: Any) -> Any:
    """Return the shape and the effects of a reduction of JAX's, in the order of netsum's if it is over all processes."""
    shape, found = shape_of(array, axes=axes, **how)
    named = [each for each in axes if not isinstance(each, int)]
    everywhere = math.prod(core.get_axis_env().axis_size(each) for each in named) == jax.process_count() > 1
    if everywhere and len(named) == len(axes) and _current and size() == jax.process_count():
        with contextlib.suppress(UnsupportedTypeError):
            check_reducible(array.dtype, op)
            return shape, {*found, _EFFECT}
    return shape, found


def _lower_reduction(
    name: str, op: Op, groups_of: Any, otherwise: Callable[..., Any], ctx: Any, array: Any, **how: Any
) -> Any:
    """Lower a reduction of JAX's to a call of netsum if `_with_effect` gave it the effect, and its groups are one of all."""
    token = ctx.tokens_in.effects()
    groups = groups_of(ctx.module_context.axis_context, how["axes"], how.get("axis_index_groups"))
    if token and len(groups) == 1 and len(groups[0]) == size():
        label = f"{name} over {', '.join(map(str, how['axes']))}"
        return _lower(ctx, array, kind="allreduce", op=op, labels=[label])
    if token:
        ctx.set_tokens_out(ctx.tokens_in)
    return otherwise(ctx, array, **how)


def _batch(arrays: Any, dims: Any, **how: Any) -> Any:
    """Reduce a batch in one call: the batch dimension becomes the last one, which no collective splits among the ranks."""
    length = next(each.shape[dim] for each, dim in zip(arrays, dims, strict=True) if dim is not None)
    moved = [
        jax.numpy.broadcast_to(each[..., None], (*each.shape, length))
        if dim is None
        else jax.numpy.moveaxis(each, dim, -1)
        for each, dim in zip(arrays, dims, strict=True)
    ]
    results = _collective.bind(*moved, **how)
    return results, [each.ndim - 1 for each in results]


batching.primitive_batchers[_collective] = _batch
