"""The seams of a round: who is asked, how a client descends, what leaves it, how uploads become a mean.

Each is a component with a name, hyper-parameters and a registry: a user's own is one class with one function. No method
and no engine knows which one is in use.
"""

from __future__ import annotations

from cgpfl.rounds.bucketing import Bucketing
from cgpfl.rounds.descent import DESCENTS, SGD, Adam, Descent, Momentum, Optax
from cgpfl.rounds.means import MEANS, Mean, WeightedMean
from cgpfl.rounds.outgoing import OUTGOING, Clip, Encoder, Noise, Outgoing, Quantise, Sparsify, TopK
from cgpfl.rounds.privacy import ClientLevel, Privacy, SampleLevel
from cgpfl.rounds.robust import (
    AutoMean,
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    Robust,
    TrimmedMean,
)
from cgpfl.rounds.samplers import SAMPLERS, ByLoss, BySize, Known, RoundRobin, Sampler, Uniform

__all__ = [
    "DESCENTS",
    "MEANS",
    "OUTGOING",
    "SAMPLERS",
    "SGD",
    "Adam",
    "AutoMean",
    "Bucketing",
    "ByLoss",
    "BySize",
    "CentredClipping",
    "ClientLevel",
    "Clip",
    "Descent",
    "Encoder",
    "GeometricMedian",
    "Known",
    "Krum",
    "Mean",
    "Median",
    "Momentum",
    "MultiKrum",
    "Noise",
    "Optax",
    "Outgoing",
    "Privacy",
    "Quantise",
    "Robust",
    "RoundRobin",
    "SampleLevel",
    "Sampler",
    "Sparsify",
    "TopK",
    "TrimmedMean",
    "Uniform",
    "WeightedMean",
]
