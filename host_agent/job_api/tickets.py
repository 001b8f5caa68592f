"""Admissions as messages of the job API."""

from dataclasses import fields
from typing import Final

from host_agent.errors import AdmissionError
from host_agent.job_api.jobs_pb2 import AdmissionTicket, Ranks, TreeLevel
from host_agent.wire import Admission
from host_agent.wire.constants import VERSION
from host_agent.wire.path import Level, one_switch

FIRST_VERSION: Final = 1
"""Version of the packets of a netsum that does not name it in its messages."""

_PLAIN_FIELDS: Final = {field.name for field in fields(Admission)}.intersection(
    AdmissionTicket.DESCRIPTOR.fields_by_name
) - {"path"}
"""Fields that an admission and its ticket both have, in the same form."""


def ticket_of(admission: Admission) -> AdmissionTicket:
    """Return an admission as a message; the path of a job on one switch follows from the rest."""
    alone = admission.path == one_switch(admission.worker_id, admission.num_workers)
    return AdmissionTicket(
        **{name: getattr(admission, name) for name in _PLAIN_FIELDS},
        switch_ip=admission.switch[0],
        switch_port=admission.switch[1],
        packets=VERSION,
        path=[
            TreeLevel(worker_id=level.worker_id, children=[Ranks(ranks=child) for child in level.children])
            for level in (() if alone else admission.path)
        ],
    )


def admission_of(ticket: AdmissionTicket) -> Admission:
    """Read what `ticket_of` wrote.

    Raises
    ------
    AdmissionError
        The switches' packets are of another version than this worker's.
    """
    version = ticket.packets or FIRST_VERSION
    if version != VERSION:
        raise AdmissionError(
            f"the controller's switches exchange packets of version {version}, this worker of version {VERSION}: "
            "install the same netsum for workers, controller and switches"
        )
    return Admission(
        **{name: getattr(ticket, name) for name in _PLAIN_FIELDS},
        switch=(ticket.switch_ip, ticket.switch_port),
        path=tuple(
            Level(level.worker_id, tuple(tuple(child.ranks) for child in level.children))
            for level in ticket.path
        ),
    )
