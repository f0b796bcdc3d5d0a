"""Data: sources, splits and the federation they make."""

from cgpfl.data.build import SPLITS, make_data
from cgpfl.data.federated import FederatedData, IndexTable
from cgpfl.data.local import load_local
from cgpfl.data.makers import MAKERS, make_contexts
from cgpfl.data.sources import SOURCES, Source, is_here, load
from cgpfl.data.splits import RULES, split

__all__ = [
    "MAKERS",
    "RULES",
    "SOURCES",
    "SPLITS",
    "FederatedData",
    "IndexTable",
    "Source",
    "is_here",
    "load",
    "load_local",
    "make_contexts",
    "make_data",
    "split",
]
