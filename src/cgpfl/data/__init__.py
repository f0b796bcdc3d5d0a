"""Data: sources, splits and the federation they make."""

from cgpfl.data.build import SPLITS, make_data
from cgpfl.data.federated import FederatedData, IndexTable
from cgpfl.data.form import Form
from cgpfl.data.local import load_local
from cgpfl.data.makers import MAKERS, make_contexts
from cgpfl.data.sources import SOURCES, is_here, load
from cgpfl.data.splits import RULES, split
from cgpfl.data.tables import Reading, Source

__all__ = [
    "MAKERS",
    "RULES",
    "SOURCES",
    "SPLITS",
    "FederatedData",
    "Form",
    "IndexTable",
    "Reading",
    "Source",
    "is_here",
    "load",
    "load_local",
    "make_contexts",
    "make_data",
    "split",
]
