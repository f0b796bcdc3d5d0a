"""Theorem 4.1 for a run: its step-size condition, and its bound with measured constants.

    (1/T) Σ_t (1/K)‖∇G_K(Ω^t)‖² ≤ O( 48α²(ρ_Ω²/K)/(α̂_0² T) + 80·sqrt(26(ρ_Ω²/K) L_G² δ²)/sqrt(NKRT) + 52δ²/(KN) )

    α̂_0 = min{ 8α²ρ_Ω²/(KΔ_G), sqrt(4/3)·αρ_Ω/ρ_g, α/(sqrt(416) L_G) },   β ≤ 1/(2·sqrt(R(R+1))·L_G),   α ≤ 1

L_G, the smoothness of G, is not given by the paper. Three readings are kept apart here, see :func:`step_condition`.
What the numbers can and cannot say is in docs/theory.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgpfl.paper.theory.prox import approximation, exact
from cgpfl.paper.theory.smoothness import Smoothness
from cgpfl.paper.theory.symbols import Symbols, symbols
from cgpfl.paper.theory.trace import Watched
from cgpfl.tree import dot


@dataclass(frozen=True)
class Reading:
    """One meaning of L_G, and what the condition on β is then."""

    name: str
    meaning: str
    L_G: float
    step: float  # β·L_G
    limit: float  # 1/(2·sqrt(R(R+1))): the theorem's condition is step ≤ limit
    proof_limit: float  # 1/(sqrt(416)·R): what its proof uses, through α̂ ≤ α̂_0

    @property
    def holds(self) -> bool:
        """Whether the condition that the theorem states is met."""
        return self.step <= self.limit

    @property
    def holds_in_proof(self) -> bool:
        """Whether the stronger condition that the proof uses is met."""
        return self.step <= self.proof_limit


@dataclass(frozen=True)
class StepCondition:
    """Theorem 4.1's condition on the step sizes, for each reading of L_G."""

    symbols: Symbols
    readings: tuple[Reading, ...]

    def __getitem__(self, name: str) -> Reading:
        return next(r for r in self.readings if r.name == name)

    def explain(self) -> str:
        s = self.symbols
        lines = [
            f"β = {s.beta:.3g}, R = {s.local_rounds}, α = {s.alpha:.3g} ({'fine' if s.alpha <= 1 else 'above 1'}); "
            f"β·L_G must be ≤ {self.readings[0].limit:.3g} (theorem), ≤ {self.readings[0].proof_limit:.3g} (its proof)"
        ]
        for r in self.readings:
            verdict = "meets both" if r.holds_in_proof else "meets the theorem's only" if r.holds else "meets neither"
            lines.append(f"{r.name:9} L_G = {r.L_G:<8.3g} β·L_G = {r.step:<8.3g} {verdict}: {r.meaning}")
        return "\n".join(lines)


def step_condition(method: Any, clients: int, curvature: Smoothness | float | None = None) -> StepCondition:
    """The condition β ≤ 1/(2·sqrt(R(R+1))·L_G) for N = ``clients``, under each reading of L_G.

    ``step``: G_i = (1/N)‖θ_i − ω‖² with θ fixed, the function that Algorithm 1's step descends: L_G = 2/N, so that
    β·L_G is ``context_rate`` whatever N is. ``printed``: Algorithm 1's β together with Assumption 2's
    G_k,i = r = ½‖θ_i − ω‖²: L_G = 1. ``envelope``, where ``curvature`` is known: θ = θ̂(ω) moves with ω, and
    ω ↦ (2/N)(ω − θ̂(ω)) is 2/(Nλ) times the gradient of the Moreau envelope, so that an eigenvalue h of ∇²f_i
    becomes (2/N)·h/(λ + h). ``curvature`` is a :class:`Smoothness` (then L_G is a lower bound, too), or a number: an L
    that holds everywhere, of convex f_i.
    """
    s = symbols(method, clients)
    found = [
        ("step", 2 / clients, "G_i = (1/N)‖θ − ω‖², θ fixed"),
        ("printed", 1.0, "G_i = r = ½‖θ − ω‖², with the β of (2/N)∇r"),
    ]
    if curvature is not None:
        found.append(("envelope", 2 / clients * _bend(curvature, s.prox), "G_i = (1/N)‖θ̂(ω) − ω‖², θ̂ moving with ω"))
    R = s.local_rounds
    limit, proof_limit = 1 / (2 * math.sqrt(R * (R + 1))), 1 / (math.sqrt(416) * R)
    return StepCondition(s, tuple(Reading(n, text, L, s.beta * L, limit, proof_limit) for n, L, text in found))


def _bend(curvature: Smoothness | float, prox: float) -> float:
    """The largest |h/(λ + h)| over the curvatures h of f_i; infinite where λ does not outweigh a negative one."""
    if not isinstance(curvature, Smoothness):
        return curvature / (prox + curvature)
    low, high = float(curvature.smallest.min()), float(curvature.largest.max())
    if low <= -prox:
        return math.inf
    return max(abs(h) / (prox + h) for h in (low, high))


@dataclass(frozen=True)
class Constants:
    """What Theorem 4.1's bound is made of."""

    symbols: Symbols
    contexts: int  # K
    L_G: float
    rho_omega2: float  # ρ_Ω²
    rho_g2: float  # ρ_g²
    drop: float  # Δ_G
    delta2: float  # δ²

    @property
    def alpha_hat_0(self) -> float:
        """α̂_0, the largest step of a round that the proof allows."""
        a, K = self.symbols.alpha, self.contexts
        first = 8 * a**2 * self.rho_omega2 / (K * self.drop) if self.drop > 0 else math.inf
        second = math.sqrt(4 / 3 * self.rho_omega2 / self.rho_g2) * a if self.rho_g2 > 0 else math.inf
        return min(first, second, a / (math.sqrt(416) * self.L_G))

    def terms(self, rounds: Any) -> tuple[Any, Any, Any]:
        """The three terms after ``rounds`` rounds (a number or an array)."""
        T = np.asarray(rounds, float)
        N, R, K = self.symbols.clients, self.symbols.local_rounds, self.contexts
        size = self.rho_omega2 / K
        first = 48 * self.symbols.alpha**2 * size / (self.alpha_hat_0**2 * T)
        second = 80 * np.sqrt(26 * size * self.L_G**2 * self.delta2) / np.sqrt(N * K * R * T)
        return first, second, np.full_like(T, 52 * self.delta2 / (K * N))

    def bound(self, rounds: Any) -> Any:
        return sum(self.terms(rounds))

    @property
    def middle_leads(self) -> bool:
        """Whether the 1/sqrt(KNRT) term is the largest of the three for any T."""
        first, second, third = self.terms(1)
        return bool(second**2 > first * third)

    @property
    def floor_from(self) -> float:
        """The T from which the constant term is larger than the first."""
        first, _, third = self.terms(1)
        return float(first / third) if third > 0 else math.inf


@dataclass(frozen=True)
class ConvergenceBound:
    """Theorem 4.1's two statements for a run, beside what was measured."""

    constants: Constants
    rounds: int  # T
    measured: float  # (1/T) Σ_t (1/K)‖∇G_K(Ω^t)‖² at the clients' own θ
    measured_exact: float  # the same at the exact θ̂, over the rounds for which it was watched; else NaN
    end: float  # (1/K)‖∇G_K‖² after the last round, at the exact θ̂
    personal: float  # (1/T) Σ_t (1/N) Σ_i ‖θ_i − ω_k(i)‖²
    diversity: float  # δ_G² at Assumption 2's scale, r: the largest over contexts and rounds
    prox_error: float  # how well θ̂ is known

    @property
    def terms(self) -> tuple[float, float, float]:
        first, second, third = self.constants.terms(self.rounds)
        return float(first), float(second), float(third)

    @property
    def total(self) -> float:
        """The bound, its O(·) read as 1."""
        return sum(self.terms)

    def explain(self) -> str:
        c, s = self.constants, self.constants.symbols
        first, second, third = self.terms
        scale = (s.clients / 2) ** 2
        allowed = "within" if s.alpha_hat <= c.alpha_hat_0 else "above"
        return (
            f"ρ_Ω² = {c.rho_omega2:.3g}, ρ_g² = {c.rho_g2:.3g}, Δ_G = {c.drop:.3g}, δ² = {c.delta2:.3g}, "
            f"δ_G² = {self.diversity:.3g}, L_G = {c.L_G:.3g}\n"
            f"α̂ = αβR = {s.alpha_hat:.3g} is {allowed} α̂_0 = {c.alpha_hat_0:.3g}\n"
            f"bound after {self.rounds} rounds: {first:.3g} + {second:.3g} + {third:.3g} = {self.total:.3g}; "
            f"measured mean {self.measured:.3g}, at exact θ̂ {self.measured_exact:.3g} (last: {self.end:.3g})\n"
            f"the 1/sqrt(KNRT) term leads {'for some T' if c.middle_leads else 'for no T'}; the constant one from "
            f"T = {c.floor_from:.3g} on\n"
            f"personal models: mean ‖θ − ω‖² = {self.personal:.3g}, against (N/2)²·gradient "
            f"{scale * self.measured:.3g}, δ_G²/λ² {self.diversity / s.prox**2:.3g}, δ² {c.delta2:.3g}"
        )


def bound(watched: Watched, *, L_G: float | None = None, clients: int = 8, seed: int = 0) -> ConvergenceBound:
    """Theorem 4.1's bound for a watched run, with every constant measured on it.

    ρ_Ω², ρ_g² and δ_G² are the largest seen over rounds. Δ_G and the last gradient are at exact proximal points of
    all clients before the first and after the last round; δ² is the larger of those two states', over
    ``clients`` clients. ``L_G`` is 2/N unless given (see :func:`step_condition`).
    """
    simulation, n = watched.simulation, watched.simulation.task.clients
    first, last = exact(simulation, watched.start), exact(simulation, watched.state)
    near = [approximation(simulation, s, clients=clients, seed=seed) for s in (watched.start, watched.state)]
    known = np.isfinite(watched.exact_gradient)
    contexts = int(watched.k.max())
    initial = contexts * float(dot(simulation.task.initial, simulation.task.initial))
    constants = Constants(
        symbols=symbols(simulation.method, n),
        contexts=contexts,
        L_G=2 / n if L_G is None else L_G,
        rho_omega2=max(float(watched.omega.max()), initial),
        rho_g2=float((watched.gradient * watched.k).max()),
        drop=first.objective - last.objective,
        delta2=max(a.delta2 for a in near),
    )
    return ConvergenceBound(
        constants=constants,
        rounds=watched.rounds,
        measured=float(watched.gradient.mean()),
        measured_exact=float(watched.exact_gradient[known].mean()) if known.any() else math.nan,
        end=last.gradient,
        personal=float((watched.gap**2).mean()),
        diversity=float(watched.diversity.max()),
        prox_error=max(first.error, last.error, *(a.error for a in near)),
    )
