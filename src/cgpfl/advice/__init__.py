"""Advice on one's own data: what is wrong with it, and whether to train alone, together or in contexts."""

from cgpfl.advice.advice import Advice, advise
from cgpfl.advice.inspected import Inspection, inspect

__all__ = ["Advice", "Inspection", "advise", "inspect"]
