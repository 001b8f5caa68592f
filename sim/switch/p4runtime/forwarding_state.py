"""A switch's state as the updates that would make it again, to carry it over to another program."""

from typing import Any

from netsum_common.p4rt import p4runtime_pb2
from sim.switch.p4runtime.pipeline import ForwardingPipeline

_Update = p4runtime_pb2.Update

# Members come before the groups and entries that point at them.
_EVERYTHING: tuple[dict[str, Any], ...] = (
    *({form: {}} for form in ("action_profile_member", "action_profile_group")),
    {"table_entry": {"counter_data": {}, "meter_config": {}}},
    {"table_entry": {"is_default_action": True}},
    *({form: {}} for form in ("meter_entry", "counter_entry", "register_entry")),
    *({form: {}} for form in ("value_set_entry", "digest_entry")),
    {"packet_replication_engine_entry": {"multicast_group_entry": {}}},
    {"packet_replication_engine_entry": {"clone_session_entry": {}}},
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
