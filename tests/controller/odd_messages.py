"""Messages of the job API with values at the edge of what their fields can hold, and bytes that are no message."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from host_agent.job_api import jobs_pb2 as api
from host_agent.wire.constants import VERSION

_FLOATS = (0.0, -0.0, 0.25, -1.0, 1e-320, 1e300, float("inf"), float("-inf"), float("nan"))
_INTEGERS = (0, 1, 2, 3, 31, 32, 33, 64, 1023, 1024, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)
_LONG = (2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    *("", " ", "\0", "a\nb", "\u202eodd", "café", "../state", "'; DROP TABLE job; --", "%s{0}", "x" * 200),
    *("x" * 201, "y" * 100_000, "s1", "h1", "s9", "127.0.2.1", "999.1.1.1", "::1", "unix:/none", "others"),
)


def ordinary(kind: str, rng: random.Random) -> Any:
    """Return a message as a client of netsum's sends it, about one of a few jobs or hosts."""
    job, rank = f"job{rng.randrange(12)}", rng.randrange(2)
    slots = rng.choice((api.Slots(count=64), api.Slots(share=0.1), api.Slots()))
    match kind:
        case "Join":
            return rng.choice(
                (
                    api.FromWorker(receive=api.Receiver(udp_port=rng.randrange(1, 65536))),
                    api.FromWorker(attach=api.Reattachment(job=job, rank=rank, lease="0", epoch=1)),
                    api.FromWorker(report=api.Report(chunks=1, stuck=api.StuckSlot(missing=[1]))),
                    api.FromWorker(leave=api.Leave()),
                    api.FromWorker(again=api.Again(epoch=1, broken=True)),
                    api.FromWorker(held=api.Held(epoch=1, begun=1, ended=1)),
                )
            )
        case "Register":
            started = api.Started(p4runtime="127.0.0.1:1", device_id=1, udp_port=1)
            return api.FromAggregator(started=started)
        case "CreateJob":
            return api.CreateJobRequest(
                name=job, world_size=2, slots=slots, if_full=rng.choice(("REFUSE", "QUEUE", "TAKE_LESS"))
            )
        case "WatchJob":
            return api.WatchJobRequest(name=job, interval_s=1)
        case "GetSwitch":
            return api.SwitchName(name="s1")
        case "ListJobs":
            return api.ListJobsRequest(ended=True)
        case "ListSwitches":
            return api.ListSwitchesRequest()
        case _:
            return api.JobName(name=job)


def first(kind: str, rng: random.Random) -> Any:
    """Return the message that a stream begins with."""
    if kind == "Register":
        return api.FromAggregator(offer=api.Offer(name=f"a{rng.randrange(4)}", ip="127.0.2.9"))
    rank = rng.randrange(2)
    join = api.JoinRequest(
        job=f"job{rng.randrange(12)}",
        rank=rank,
        world_size=2,
        addresses=[f"127.0.2.{rank + 1}"],
        packets=VERSION,
    )
    return api.FromWorker(join=join)


def odd(message: Any, rng: random.Random) -> bytes:
    """Return a message's bytes after some of its fields, or some of the bytes, have been changed."""
    _change(message, rng)
    body = bytearray(message.SerializeToString())
    match rng.randrange(40):
        case 0:
            return rng.randbytes(rng.randrange(1, 60))
        case 1:
            return bytes(body[: rng.randrange(len(body) + 1)])
        case 2 if body:
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return bytes(body)


def _change(message: Any, rng: random.Random) -> None:
    for field in message.DESCRIPTOR.fields:
        part = getattr(message, field.name)
        if field.message_type is not None:
            if message.HasField(field.name):
                _change(part, rng)
        elif rng.random() > 0.15 or (field.containing_oneof and not message.HasField(field.name)):
            continue
        elif hasattr(part, "extend"):
            part.extend(_value(field, rng) for _ in range(rng.choice((1, 2, 30))))
        else:
            setattr(message, field.name, _value(field, rng))


def _value(field: Any, rng: random.Random) -> Any:
    match field.cpp_type:
        case Field.CPPTYPE_DOUBLE:
            return rng.choice(_FLOATS)
        case Field.CPPTYPE_STRING:
            return rng.choice(_TEXTS)
        case Field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case Field.CPPTYPE_ENUM:
            return rng.choice((3, 2**31 - 1, -1))
        case Field.CPPTYPE_UINT64:
            return rng.choice(_INTEGERS + _LONG)
        case _:
            return rng.choice(_INTEGERS)
