"""Data: sources, splits and the federation they make."""

from cgpfl.data.build import SPLITS as SPLITS
from cgpfl.data.build import make_data as make_data
from cgpfl.data.federated import FederatedData as FederatedData
from cgpfl.data.federated import IndexTable as IndexTable
from cgpfl.data.form import Form as Form
from cgpfl.data.local import load_local as load_local
from cgpfl.data.makers import MAKERS as MAKERS
from cgpfl.data.makers import make_contexts as make_contexts
from cgpfl.data.sources import SOURCES as SOURCES
from cgpfl.data.sources import is_here as is_here
from cgpfl.data.sources import load as load
from cgpfl.data.splits import RULES as RULES
from cgpfl.data.splits import split as split
from cgpfl.data.tables import Reading as Reading
from cgpfl.data.tables import Source as Source
