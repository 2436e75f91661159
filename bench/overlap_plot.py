#!/usr/bin/env python3
"""Draws step time over batch size for serial, each order and auto as SVG, from the output of bench overlap --json.

    bench/overlap_plot.py FILE... FOLDER      writes FOLDER/overlap-CLOCK-SHAPE-PHASE.svg for each of them; two ranks, a column a link

The upper row shows milliseconds of a step, the lower row the speed relative to serial, both over rows of a rank. Prints the goals over
all points of the files.
"""

import collections
import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y, LEGEND = 250, 170, 60, 44, 44, 38, 64
COLORS = {  # by order; orders without a colour are not drawn
    "serial": "#888888",
    "four-phase": "#1f77b4",
    "sglang-prefill": "#9467bd",
    "sglang-decode": "#8c564b",
    "lightllm-prefill": "#17becf",
    "lightllm-decode": "#e377c2",
    "best single-batch": "#2ca02c",
    "single-batch, 2 parts": "#2ca02c",
    "single-batch, 4 parts": "#bcbd22",
    "auto": "#d62728",
}

# Orders of other engines. The goal: auto is 20 % faster somewhere, and nowhere more than 2 % slower.
FIXED = ("sglang-prefill", "sglang-decode", "lightllm-prefill", "lightllm-decode", "four-phase")
BEATEN, AHEAD = 0.20, 0.02


def read(paths):
    """Returns {(clock, shape, phase): {link: {order: [(rows, us, serial us)]}}}, for two ranks."""
    figures = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for path in paths:
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["ranks"] == 2 and row["order"] in COLORS:
                figure = figures[row["clock"], row["shape"], row["phase"]]
                figure[row["link_gbit"]][row["order"]].append((row["rows"], row["step_us"], row["serial_us"]))
    return figures


class PlotArea:
    """A plot in the picture: x logarithmic, y logarithmic or not."""

    def __init__(self, left, top, x_range, y_range, log_y):
        self.left, self.top, self.x_range, self.y_range, self.log_y = left, top, x_range, y_range, log_y
        self.out = [f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>']

    def x(self, value):
        low, high = map(math.log2, self.x_range)
        return self.left + WIDTH * ((math.log2(value) - low) / max(high - low, 1e-9))

    def y(self, value):
        low, high = map(math.log10, self.y_range) if self.log_y else self.y_range
        at = math.log10(value) if self.log_y else value
        return self.top + HEIGHT * (1 - (at - low) / max(high - low, 1e-9))

    def text(self, x, y, text, anchor="middle", size=10):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{text}</text>')

    def ticks(self, rows):
        for value in rows:
            self.out.append(f'<path d="M{self.x(value):.1f} {self.top + HEIGHT}v4" stroke="#888"/>')
            self.text(self.x(value), self.top + HEIGHT + 15, f"{value}")
        low, high = self.y_range
        if self.log_y:
            values = [10.0**e for e in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
        else:
            step = next(s for s in (0.1, 0.2, 0.25, 0.5, 1) if (high - low) / s <= 6 or s == 1)
            values = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
        for value in values:
            self.out.append(f'<path d="M{self.left} {self.y(value):.1f}h{WIDTH}" stroke="#eee"/>')
            self.text(self.left - 5, self.y(value) + 3, f"{value:g}", "end")

    def line(self, points, color, is_auto):
        style = 'stroke-width="2.2"' if is_auto else 'stroke-width="1.2" stroke-opacity="0.85"'
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.out.append(f'<polyline points="{path}" fill="none" stroke="{color}" {style}/>')
        for x, y in points:
            self.out.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{2.4 if is_auto else 1.6}" fill="{color}"/>')


def ranges(links):
    points = [p for orders in links.values() for series in orders.values() for p in series]
    rows = sorted({p[0] for p in points})
    ms = [p[1] / 1e3 for p in points]
    speeds = [p[2] / p[1] for p in points]
    return rows, (min(ms) / 1.2, max(ms) * 1.2), (min(min(speeds), 1) - 0.05, max(speeds) + 0.05)


def draw(key, links):
    clock, shape, phase = key
    rows, ms_range, speed_range = ranges(links)
    x_range = (rows[0], max(rows[-1], 2 * rows[0]))
    width = LEFT + len(links) * (WIDTH + GAP_X)
    height = TOP + 2 * (HEIGHT + GAP_Y) + LEGEND
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{shape}, {phase}, 2 ranks, {clock} time</text>',
    ]
    names = [name for name in COLORS if any(name in orders for orders in links.values())]
    for column, (gbit, orders) in enumerate(sorted(links.items())):
        left = LEFT + column * (WIDTH + GAP_X)
        above = PlotArea(left, TOP, x_range, ms_range, True)
        below = PlotArea(left, TOP + HEIGHT + GAP_Y, x_range, speed_range, False)
        above.text(left + WIDTH / 2, TOP - 8, f"{gbit:g} Gbit/s", size=12)
        for panel in above, below:
            panel.ticks(rows)
        for name in names:
            series = sorted(orders.get(name, []))
            above.line([(n, us / 1e3) for n, us, _ in series], COLORS[name], name == "auto")
            below.line([(n, serial / us) for n, us, serial in series], COLORS[name], name == "auto")
        if column == 0:
            for panel, label in (above, "ms a step"), (below, "serial / step"):
                y = panel.top + HEIGHT / 2
                panel.out.append(f'<text x="16" y="{y}" font-size="11" text-anchor="middle" transform="rotate(-90 16 {y})">{label}</text>')
        out += above.out + below.out
    for i, name in enumerate(names):
        x, y = LEFT + i % 5 * 190, height - LEGEND + 22 + i // 5 * 18
        out.append(f'<path d="M{x} {y}h24" stroke="{COLORS[name]}" stroke-width="2.5"/>')
        out.append(f'<text x="{x + 30}" y="{y + 4}" font-size="11">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


def print_goals(paths):
    """Prints the goals as bench overlap does, over the points of all files."""
    rows = [json.loads(line) for path in paths for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    for clock in sorted({row["clock"] for row in rows}):
        goals, gains = collections.defaultdict(list), collections.defaultdict(list)
        points = collections.defaultdict(dict)
        for row in rows:
            if row["clock"] == clock:
                points[row["shape"], row["ranks"], row["phase"], row["rows"], row["link_gbit"]][row["order"]] = row
        for point, orders in points.items():
            for goal in orders["auto"].get("goals", []):
                goals[goal["goal"]].append((goal["met"], goal["value"], point))
            for name in FIXED:
                if name in orders:
                    gains[name].append(orders[name]["step_us"] / orders["auto"]["step_us"] - 1)
        print(f"{clock} time, {len(points)} points")
        for goal, seen in goals.items():
            met = sum(one[0] for one in seen)
            worst = (max if "<=" in goal else min)(seen, key=lambda one: one[1])
            at = " ".join(map(str, worst[2]))
            print(f"  {'ok  ' if met == len(seen) else 'MISS'} {goal}: {met} of {len(seen)}, worst {worst[1]:.3f} at {at} Gbit/s")
        for name, all_gains in gains.items():
            is_met = max(all_gains) >= BEATEN and min(all_gains) >= -AHEAD
            best, least = 100 * max(all_gains), abs(100 * min(0, *all_gains))
            print(f"  {'ok  ' if is_met else 'MISS'} auto against {name}: at most {best:.0f} % faster, {least:.1f} % slower")


def main(paths, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for key, links in sorted(read(paths).items()):
        path = folder / f"overlap-{'-'.join(key)}.svg"
        path.write_text(draw(key, links), encoding="utf-8")
        print(path)
    print_goals(paths)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1:-1], sys.argv[-1])
