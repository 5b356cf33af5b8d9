# SPDX-License-Identifier: Apache-2.0
"""Plots measured points with lower bounds on logarithmic axes, as SVG. Standard library only."""
import math

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 44, 56
# These are readable on a white and on a dark page, and distinguishable with red-green color blindness.
COLORS = ["#2f6fd0", "#d9822b", "#2a9d6f", "#9b59b6"]


def _number(value):
    if value >= 1000 and value % 1000 == 0:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def _ticks(low, high):
    """Returns 1, 2 and 5 times powers of ten within [low, high]."""
    ticks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in (1, 2, 5):
            tick = factor * 10.0 ** power
            if low * 0.999 <= tick <= high * 1.001:
                ticks.append(tick)
    return ticks


def _escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _Axes:
    def __init__(self, xs, ys):
        self.x0, self.x1 = min(xs) / 1.15, max(xs) * 1.15
        self.y0, self.y1 = min(ys) / 1.4, max(ys) * 1.4

    def x(self, value):
        share = math.log(value / self.x0) / math.log(self.x1 / self.x0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        share = math.log(value / self.y0) / math.log(self.y1 / self.y0)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _grid(axes, xs):
    parts = []
    for tick in _ticks(axes.y0, axes.y1):
        y = axes.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" '
                     f'y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                     f'{_number(tick)}</text>')
    for value in xs:
        x = axes.x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" '
                     f'y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                     f'{_number(value)}</text>')
    return parts


def plot(title, x_label, y_label, series):
    """Returns the text of an SVG. `series`: [{"name", "points": [(x, y)], "floor": bool}], y > 0; floors
    are dashed lines in the color of the previous series."""
    xs = sorted({x for s in series for x, _ in s["points"]})
    axes = _Axes(xs, [y for s in series for _, y in s["points"]])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{_escape(title)}">',
        "<style>text{font:12px sans-serif;fill:#555}.title{font-size:13px;font-weight:600}"
        ".grid{stroke:#8884;stroke-width:1}"
        "@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>",
        f'<text class="title" x="8" y="18">{_escape(title)}</text>',
        *_grid(axes, xs),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
        f'{_escape(x_label)}</text>',
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{_escape(y_label)}</text>',
    ]
    color, legend_x = -1, LEFT
    for s in series:
        floor = s.get("floor", False)
        color += 0 if floor and color >= 0 else 1
        stroke = COLORS[color % len(COLORS)]
        dash = ' stroke-dasharray="5 4" opacity="0.8"' if floor else ""
        path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in sorted(s["points"]))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{stroke}" '
                     f'stroke-width="2"{dash}/>')
        if not floor:
            parts += [f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3.5" '
                      f'fill="{stroke}"/>' for x, y in s["points"]]
        parts.append(f'<line x1="{legend_x}" y1="32" x2="{legend_x + 22}" y2="32" '
                     f'stroke="{stroke}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{legend_x + 27}" y="36">{_escape(s["name"])}</text>')
        legend_x += 46 + 7 * len(s["name"])
    return "\n".join(parts + ["</svg>"]) + "\n"
