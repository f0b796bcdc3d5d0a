"""The page's pictures, as SVG in the page's colours."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import numpy as np
import pandas as pd

from cgpfl.advice import words
from cgpfl.advice.curve import FARTHEST, Curve

WIDE, TALL = 900, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 34


def gain_chart(clients: pd.DataFrame, task: str) -> str:
    """What each client gains over training alone, a bar each, sorted; faint: cannot be told from chance."""
    frame = clients.sort_values("gain", ascending=False)
    gain = frame["gain"].to_numpy(float)
    low, high = min(float(gain.min()), 0.0), max(float(gain.max()), 0.0)
    pad = 0.08 * max(high - low, 1e-6)
    low, high = (low - pad if low < 0 else 0.0), (high + pad if high > 0 else 0.0)
    high = high if high > low else low + 1e-6
    width = (WIDE - LEFT - RIGHT) / len(gain)

    def y(value: float) -> float:
        return TOP + (TALL - TOP - BOTTOM) * (high - value) / (high - low)

    parts = [_ruler(low, high, y, "" if task == "regression" else " pt")]
    for i, row in enumerate(frame.to_dict("records")):
        value = float(row["gain"])
        top, tall = min(y(value), y(0.0)), abs(y(value) - y(0.0))
        kind = ("up" if value >= 0 else "down") + ("" if row["told"] else " faint")
        said = escape(f"{row['client']}: {words.points(value, task)}, {row['samples']} samples")
        parts.append(
            f'<rect class="{kind}" x="{LEFT + i * width + 0.1 * width:.1f}" y="{top:.1f}" width="{0.8 * width:.1f}" '
            f'height="{max(tall, 0.8):.1f}"><title>{said}</title></rect>'
        )
    if len(gain) <= 40:
        parts += [
            f'<text x="{LEFT + (i + 0.5) * width:.1f}" y="{TALL - BOTTOM + 13}" text-anchor="middle">'
            f"{escape(_short(str(name), width))}</text>"
            for i, name in enumerate(frame["client"])
        ]
    parts.append(f'<line class="zero" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>')
    parts.append(
        f'<text x="{WIDE - RIGHT}" y="{TALL - 4}" text-anchor="end">gain over training alone, a bar a client; '
        "faint: cannot be told from chance</text>"
    )
    return _svg("Gain of each client over training alone", parts)


def curve_chart(curve: Curve, task: str) -> str:
    """Score alone over training samples, on a logarithmic scale, and the target."""
    samples, score = curve.samples, curve.score
    known = curve.times is not None and np.isfinite(curve.times) and curve.times > 1
    reach = samples[-1] * (float(curve.times or 1.0) if known else 2.0) * 1.3
    left, right = np.log(samples[0] * 0.85), np.log(reach)
    values = [*score, curve.target]
    pad = 0.12 * max(max(values) - min(values), 1e-3)
    low, high = min(values) - pad, max(values) + pad

    def x(m: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * (np.log(m) - left) / (right - left)

    def y(value: float) -> float:
        return TOP + (TALL - TOP - BOTTOM) * (high - value) / (high - low)

    line = " ".join(f"{x(m):.1f},{y(s):.1f}" for m, s in zip(samples, score, strict=True))
    aim = y(curve.target)
    parts = [
        _ruler(low, high, y, "" if task == "regression" else " %"),
        f'<line class="aim" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{aim:.1f}" y2="{aim:.1f}"/>',
        f'<text class="ink" x="{WIDE - RIGHT}" y="{aim - 5:.1f}" text-anchor="end">recommended: '
        f"{words.score(curve.target, task)}</text>",
        f'<polyline class="line" points="{line}"/>',
    ]
    for m, s in zip(samples, score, strict=True):
        parts.append(
            f'<circle class="up" cx="{x(m):.1f}" cy="{y(s):.1f}" r="4"><title>{m:.0f} samples: '
            f"{words.score(float(s), task)}</title></circle>"
            f'<text x="{x(m):.1f}" y="{TALL - BOTTOM + 13}" text-anchor="middle">{m:.0f}</text>'
        )
    if known:
        m = samples[-1] * float(curve.times or 1.0)
        parts.append(
            f'<line class="line faint" stroke-dasharray="2 4" x1="{x(samples[-1]):.1f}" y1="{y(score[-1]):.1f}" '
            f'x2="{x(m):.1f}" y2="{aim:.1f}"/>'
            f'<text x="{x(m):.1f}" y="{TALL - BOTTOM + 13}" text-anchor="middle">≥ {m:.0f}</text>'
        )
    parts.append(f'<text x="{WIDE - RIGHT}" y="{TALL - 4}" text-anchor="end">training samples a client, alone</text>')
    return _svg(f"Alone with fewer samples; shown up to {FARTHEST:g} times", parts)


def mean_images(means: np.ndarray) -> str:
    """Mean image of each context ``[K, height, width]``, all on one scale, of at most 32 pixels a side."""
    low, high = float(means.min()), float(means.max())
    grey = np.round(255 * (1 - (means - low) / max(high - low, 1e-9))).astype(int)
    step = max(-(-max(grey.shape[1:]) // 32), 1)
    figures = []
    for k, image in enumerate(grey[:, ::step, ::step]):
        cells = "".join(
            f'<rect x="{c}" y="{r}" width="1.02" height="1.02" fill="rgb({v},{v},{v})"/>'
            for (r, c), v in np.ndenumerate(image)
        )
        tall, wide = image.shape
        figures.append(
            f'<figure><svg viewBox="0 0 {wide} {tall}" role="img" aria-label="mean image of context {k + 1}">{cells}'
            f"</svg><figcaption>context {k + 1}, mean</figcaption></figure>"
        )
    return f'<div class="means">{"".join(figures)}</div>'


def _ruler(low: float, high: float, y: Callable[[float], float], unit: str) -> str:
    """Lines and figures at round values; with a unit they are hundredths."""
    rough = (high - low) / 4
    ten = 10.0 ** np.floor(np.log10(rough))
    step = next(m * ten for m in (1, 2, 2.5, 5, 10) if m * ten >= rough)
    lines = []
    for value in np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step:
        text = f"{100 * value:.3g}{unit}" if unit else f"{value:.3g}"
        lines.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{text}</text>'
        )
    return "".join(lines)


def _short(name: str, width: float) -> str:
    room = max(int(width / 6.2), 1)
    return name if len(name) <= room else name[: max(room - 1, 1)] + "…"


def _svg(title: str, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {WIDE} {TALL}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
