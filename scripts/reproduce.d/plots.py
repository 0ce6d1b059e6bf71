# SPDX-License-Identifier: Apache-2.0
"""Small drawings as SVG text: lines, steps and grouped bars on one pair of axes."""
import html
import math

COLORS = ["#1b6ca8", "#d1495b", "#3a7d44", "#e09f3e", "#7b4ea3", "#5c6b73", "#00a6a6", "#9c6644"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 64, 150, 34, 46


def ticks(low, high, most=6):
    """Round numbers from `low` to `high`, at most about `most`."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step *= next(f for f in (1, 2, 5, 10) if (high - low) / (step * f) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def label(x):
    return f"{x / 1000:g}k" if abs(x) >= 10000 else f"{x:g}"


class Axes:
    def __init__(self, title, x_label, y_label, x_range, y_range, log_x=False):
        self.parts, self.legend, self.log_x = [], [], log_x
        self.x, self.y = x_range, y_range
        self.right, self.bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        self.text(LEFT, 20, title, size=14)
        self.text((LEFT + self.right) / 2, HEIGHT - 8, x_label, "middle")
        middle = (TOP + self.bottom) / 2
        self.parts.append(f'<text x="14" y="{middle:.0f}" transform="rotate(-90 14 {middle:.0f})" '
                          f'text-anchor="middle">{html.escape(y_label)}</text>')
        for y in ticks(*y_range):
            self.line(LEFT, self.right, self.py(y), self.py(y))
            self.text(LEFT - 8, self.py(y) + 4, label(y), "end")

    def px(self, x):
        low, high = self.x
        if self.log_x:
            x, low, high = math.log(x), math.log(low), math.log(high)
        return LEFT + (x - low) / ((high - low) or 1) * (self.right - LEFT)

    def py(self, y):
        low, high = self.y
        return self.bottom - (min(max(y, low), high) - low) / ((high - low) or 1) * (self.bottom - TOP)

    def line(self, x1, x2, y1, y2, color="#ddd", dashed=False):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{color}"{dash}/>')

    def text(self, x, y, words, anchor="start", size=None):
        size = f' font-size="{size}"' if size else ""
        words = html.escape(str(words))
        self.parts.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{size}>{words}</text>')

    def x_ticks(self, values):
        for x in values:
            self.text(self.px(x), self.bottom + 18, label(x), "middle")

    def name(self, words, color, dashed=False):
        y = TOP + 12 + 20 * len(self.legend)
        self.legend.append(words)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<line x1="{self.right + 12}" x2="{self.right + 32}" y1="{y - 4}" y2="{y - 4}" '
                          f'stroke="{color}" stroke-width="3"{dash}/>')
        self.text(self.right + 38, y, words)

    def svg(self):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
                f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n')
        return head + "\n".join(self.parts) + "\n</svg>\n"


def thinned(points, most=160):
    """So few points that a drawing stays small, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]


def lines(title, x_label, y_label, series, x_range=None, y_range=None, log_x=False, steps=False, marks=True,
          x_values=None):
    """`series`: {name: [(x, y)]}; a y of None is left out. A name that ends in " (paper)" is dashed."""
    shown = {n: thinned([(x, y) for x, y in p if y is not None]) for n, p in series.items()}
    xs = [x for p in shown.values() for x, _ in p] or [0, 1]
    ys = [y for p in shown.values() for _, y in p] or [0, 1]
    a = Axes(title, x_label, y_label, x_range or (min(xs), max(xs)), y_range or (min(0, *ys), max(*ys, 0) * 1.05),
             log_x)
    a.x_ticks(x_values or (sorted(set(xs)) if log_x else ticks(*a.x, 8)))
    for i, (name, points) in enumerate(shown.items()):
        color, dashed = COLORS[i % len(COLORS)], name.endswith("(paper)")
        path, last = [], None
        for x, y in points:
            if steps and last is not None:
                path.append((a.px(x), a.py(last)))
            path.append((a.px(x), a.py(y)))
            last = y
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        a.parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="2"{dash} points="{text}"/>')
        if marks and len(points) <= 40:
            a.parts += [f'<circle cx="{a.px(x):.1f}" cy="{a.py(y):.1f}" r="2.5" fill="{color}"/>' for x, y in points]
        a.name(name, color, dashed)
    return a.svg()


def bars(title, y_label, groups, series, y_range=None):
    """`series`: {name: [a value or None for each group]}."""
    values = [v for s in series.values() for v in s if v is not None] or [1]
    a = Axes(title, "", y_label, (0, len(groups)), y_range or (min(0, *values), max(*values, 0) * 1.08))
    for i, name in enumerate(groups):  # Where names would overlap every second one is lower.
        crowded = len(groups) > 1 and 7.5 * max(map(len, groups)) > a.px(1) - a.px(0)
        a.text(a.px(i + 0.5), a.bottom + (28 if crowded and i % 2 else 16), name, "middle", 10 if crowded else None)
    width = 0.8 / len(series)
    for i, (name, row) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        for g, v in enumerate(row):
            x, base = a.px(g + 0.1 + i * width), a.py(0)
            if v is None:
                a.text(x + 4, base - 4, "×")
                continue
            a.parts.append(f'<rect x="{x:.1f}" y="{min(a.py(v), base):.1f}" width="{a.px(width) - a.px(0) - 1:.1f}" '
                           f'height="{abs(base - a.py(v)):.1f}" fill="{color}"/>')
        a.name(name, color)
    return a.svg()


def share_below(values):
    """Points of the cumulative distribution of `values`, in percent."""
    ordered = sorted(values)
    return [(v, 100 * (i + 1) / len(ordered)) for i, v in enumerate(ordered)]
