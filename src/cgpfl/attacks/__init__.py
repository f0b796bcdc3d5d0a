"""Liars, for research: what clients that are not honest send, in simulations alone.

An attack is a component of a run (``attack = "sign-flip"``), as the rules of a round are: who lies is drawn from the
run's seed, and what is measured is measured of the honest clients.
"""

from __future__ import annotations

from cgpfl.attacks.base import ATTACKS as ATTACKS
from cgpfl.attacks.base import Attack as Attack
from cgpfl.attacks.base import Lying as Lying
from cgpfl.attacks.base import Nobody as Nobody
from cgpfl.attacks.base import Seen as Seen
from cgpfl.attacks.kit import ALIE as ALIE
from cgpfl.attacks.kit import Counts as Counts
from cgpfl.attacks.kit import ForgedContext as ForgedContext
from cgpfl.attacks.kit import InnerProduct as InnerProduct
from cgpfl.attacks.kit import Noisy as Noisy
from cgpfl.attacks.kit import Scaling as Scaling
from cgpfl.attacks.kit import SignFlip as SignFlip
from cgpfl.attacks.poison import Backdoor as Backdoor
from cgpfl.attacks.poison import LabelFlip as LabelFlip
