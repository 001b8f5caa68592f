"""Strategies of distributed training: what workers send one another, how often, and to which workers.

Each strategy is a file. All communication goes through torch.distributed, so a strategy runs over netsum, Gloo or any other
back end. `strategy` makes one by name; see ``docs/strategies.md``.

Needs PyTorch.
"""

from host_agent.strategies.admm import ADMM
from host_agent.strategies.asynchronous import Downpour, ElasticAveraging, StaleSynchronous
from host_agent.strategies.backup import BackupWorkers
from host_agent.strategies.base import STRATEGIES, Strategy
from host_agent.strategies.codistillation import Codistillation
from host_agent.strategies.decoupled import DecoupledDiLoCo
from host_agent.strategies.diloco import DiLoCo
from host_agent.strategies.dion import Dion
from host_agent.strategies.dynamic import DynamicAveraging
from host_agent.strategies.exchange import StrategyExchange, Traffic
from host_agent.strategies.fedavg import FedAvg
from host_agent.strategies.hierarchical import HierarchicalSGD
from host_agent.strategies.local_sgd import LocalSGD
from host_agent.strategies.muon import Muon
from host_agent.strategies.registry import strategy
from host_agent.strategies.sparse_loco import SparseLoCo
from host_agent.strategies.synchronous import Synchronous

__all__ = [
    "ADMM",
    "STRATEGIES",
    "BackupWorkers",
    "Codistillation",
    "DecoupledDiLoCo",
    "DiLoCo",
    "Dion",
    "Downpour",
    "DynamicAveraging",
    "ElasticAveraging",
    "FedAvg",
    "HierarchicalSGD",
    "LocalSGD",
    "Muon",
    "SparseLoCo",
    "StaleSynchronous",
    "Strategy",
    "StrategyExchange",
    "Synchronous",
    "Traffic",
    "strategy",
]
