"""A switch's state as the updates that would make it again, to carry it over to another program."""

from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.p4runtime.pipeline import ForwardingPipeline

_Update = p4runtime_pb2.Update
_EngineEntry = p4runtime_pb2.PacketReplicationEngineEntry

# Members come before the groups and entries that point at them.
_EVERYTHING: tuple[dict[str, Any], ...] = (
    {"action_profile_member": p4runtime_pb2.ActionProfileMember()},
    {"action_profile_group": p4runtime_pb2.ActionProfileGroup()},
    {
        "table_entry": p4runtime_pb2.TableEntry(
            counter_data=p4runtime_pb2.CounterData(), meter_config=p4runtime_pb2.MeterConfig()
        )
    },
    {"table_entry": p4runtime_pb2.TableEntry(is_default_action=True)},
    {"meter_entry": p4runtime_pb2.MeterEntry()},
    {"counter_entry": p4runtime_pb2.CounterEntry()},
    {"register_entry": p4runtime_pb2.RegisterEntry()},
    {"value_set_entry": p4runtime_pb2.ValueSetEntry()},
    {"digest_entry": p4runtime_pb2.DigestEntry()},
    {
        "packet_replication_engine_entry": _EngineEntry(
            multicast_group_entry=p4runtime_pb2.MulticastGroupEntry()
        )
    },
    {"packet_replication_engine_entry": _EngineEntry(clone_session_entry=p4runtime_pb2.CloneSessionEntry())},
)


def forwarding_state(pipeline: ForwardingPipeline, *, arrays: bool = True) -> list[Any]:
    """List the updates that bring a fresh pipeline to the state of this one.

    The initial state is omitted: entries of the program itself, zeros, default actions that no controller has set.

    `arrays`: whether the cells of counters, meters and registers are among them.
    """
    updates = []
    for form in _EVERYTHING:
        if not arrays and form.keys() & {"meter_entry", "counter_entry", "register_entry"}:
            continue
        for entity in pipeline.read(p4runtime_pb2.Entity(**form)):
            update_type = _needed(entity, pipeline)
            if update_type != _Update.UNSPECIFIED:
                updates.append(_Update(type=update_type, entity=entity))
    return updates


def _needed(entity: Any, pipeline: ForwardingPipeline) -> "_Update.Type":
    """Return which type of update makes an entity; UNSPECIFIED if it need not be made."""
    form = entity.WhichOneof("entity")
    message = getattr(entity, form)
    written = _Update.INSERT
    needed = True
    if form == "table_entry":
        needed = not message.is_const
        if message.is_default_action:
            written, needed = _Update.MODIFY, pipeline.tables.default_is_set(message.table_id)
    elif form == "meter_entry":
        written, needed = _Update.MODIFY, message.HasField("config")
    elif form == "counter_entry":
        written, needed = _Update.MODIFY, message.data.packet_count or message.data.byte_count
    elif form == "register_entry":
        written, needed = _Update.MODIFY, message.data.bitstring != b"\x00"
    elif form == "value_set_entry":
        written, needed = _Update.MODIFY, bool(message.members)
    return written if needed else _Update.UNSPECIFIED
