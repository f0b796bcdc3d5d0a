"""The seams of a round: who is asked, how a client descends, what leaves it, how uploads become a mean.

Each is a component with a name, hyper-parameters and a registry: a user's own is one class with one function. No method
and no engine knows which one is in use.
"""

from __future__ import annotations

from cgpfl.rounds.bucketing import Bucketing as Bucketing
from cgpfl.rounds.descent import DESCENTS as DESCENTS
from cgpfl.rounds.descent import SGD as SGD
from cgpfl.rounds.descent import Adam as Adam
from cgpfl.rounds.descent import Descent as Descent
from cgpfl.rounds.descent import Momentum as Momentum
from cgpfl.rounds.descent import Optax as Optax
from cgpfl.rounds.means import MEANS as MEANS
from cgpfl.rounds.means import Mean as Mean
from cgpfl.rounds.means import WeightedMean as WeightedMean
from cgpfl.rounds.outgoing import OUTGOING as OUTGOING
from cgpfl.rounds.outgoing import Clip as Clip
from cgpfl.rounds.outgoing import Encoder as Encoder
from cgpfl.rounds.outgoing import Noise as Noise
from cgpfl.rounds.outgoing import Outgoing as Outgoing
from cgpfl.rounds.outgoing import Quantise as Quantise
from cgpfl.rounds.outgoing import Sparsify as Sparsify
from cgpfl.rounds.outgoing import TopK as TopK
from cgpfl.rounds.privacy import ClientLevel as ClientLevel
from cgpfl.rounds.privacy import Privacy as Privacy
from cgpfl.rounds.privacy import SampleLevel as SampleLevel
from cgpfl.rounds.robust import AutoMean as AutoMean
from cgpfl.rounds.robust import CentredClipping as CentredClipping
from cgpfl.rounds.robust import GeometricMedian as GeometricMedian
from cgpfl.rounds.robust import Krum as Krum
from cgpfl.rounds.robust import Median as Median
from cgpfl.rounds.robust import MultiKrum as MultiKrum
from cgpfl.rounds.robust import Robust as Robust
from cgpfl.rounds.robust import TrimmedMean as TrimmedMean
from cgpfl.rounds.samplers import SAMPLERS as SAMPLERS
from cgpfl.rounds.samplers import ByLoss as ByLoss
from cgpfl.rounds.samplers import BySize as BySize
from cgpfl.rounds.samplers import Known as Known
from cgpfl.rounds.samplers import RoundRobin as RoundRobin
from cgpfl.rounds.samplers import Sampler as Sampler
from cgpfl.rounds.samplers import Uniform as Uniform
