"""Plots of a document of `benchmarks.load`, as SVG: `python -m benchmarks.load.plots out.json docs/load`.

Needs requirements/bench.txt.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.common import Document
from benchmarks.load.flood import ITSELF, worst_of

mpl.use("svg")
mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
mpl.rcParams.update({"svg.hashsalt": "leman", "svg.fonttype": "none", "font.family": "DejaVu Sans"})  # small files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.document.read_text()), options.folder)


def draw(document: Document, folder: Path) -> None:
    """Draw what the document has."""
    folder.mkdir(parents=True, exist_ok=True)
    if "rpcs" in document:
        _peaks(document["rpcs"]["subjects"], folder / "peaks.svg")
        _overload(document["rpcs"]["subjects"], folder / "overload.svg")
    if "flood" in document:
        _flood(document["flood"]["subjects"], folder / "front.svg")
    if "soak" in document:
        _soak(document["soak"]["samples"], folder / "soak.svg")


def _peaks(rpcs: Document, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 0.45 * len(rpcs) + 1))
    names = list(rpcs)[::-1]
    for offset, key, label in ((0.2, "bare", "bare grpc.aio, same answers"), (-0.2, "closed_loop", "Leman")):
        rates = [rpcs[name][key]["answered_per_second"] for name in names]
        bars = axes.barh([n + offset for n in range(len(names))], rates, 0.38, label=label)
        axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("answers a second, closed loop")
    axes.legend(frameon=False)
    _save(figure, path)


def _overload(rpcs: Document, path: Path) -> None:
    shown = {name: rpc for name, rpc in rpcs.items() if rpc["open_loop"]}
    figure, grid = plt.subplots(len(shown), 2, figsize=(9, 2.3 * len(shown)), squeeze=False)
    for (rates, times), (name, rpc) in zip(grid, shown.items(), strict=True):
        factors = [step["factor"] for step in rpc["open_loop"]]
        peak = rpc["closed_loop"]["answered_per_second"]
        rates.plot(factors, [step["answered_per_second"] for step in rpc["open_loop"]], "o-", label="answered")
        rates.plot(factors, [_others(step) for step in rpc["open_loop"]], "x--", label="refused")
        rates.axhline(peak, color="grey", linewidth=0.5)
        rates.set(title=name, xscale="log", ylabel="calls a second")
        for mark in ("p50", "p99"):
            times.plot(
                factors, [step["answered"].get(mark) for step in rpc["open_loop"]], "o-", label=f"answered {mark}"
            )
        times.plot(factors, [_refused_p99(step) for step in rpc["open_loop"]], "x--", label="refused p99")
        probes = [max(p["answered"].get("p99", 0) for p in step["probes"].values()) for step in rpc["open_loop"]]
        times.plot(factors, probes, "s:", label="health, GetJob, CancelJob p99, the worst")
        times.set(title=name, xscale="log", yscale="log", ylabel="milliseconds")
        for axes in (rates, times):
            axes.set_xticks(factors, [f"{factor:g}×" for factor in factors])
            axes.minorticks_off()
    grid[0][0].legend(frameon=False)
    grid[0][1].legend(frameon=False)
    _save(figure, path)


def _flood(rpcs: Document, path: Path) -> None:
    """Through a front: what share of the peak is kept, and how long refusals and the probes take."""
    figure, (kept, times) = plt.subplots(1, 2, figsize=(9, 3.6))
    for name, rpc in rpcs.items():
        steps, peak = rpc["open_loop"], rpc["closed_loop"]["answered_per_second"]
        factors = [step["factor"] for step in steps]
        kept.plot(factors, [step["answered_per_second"] / peak for step in steps], "o-", label=name)
        beside = [[probe for kind, probe in step["probes"].items() if kind != ITSELF] for step in steps]
        (line,) = times.plot(factors, [worst_of(probes) for probes in beside], "s:")
        refused = [_refused_p99(step["probes"][ITSELF]) for step in steps]
        times.plot(factors, refused, "x--", color=line.get_color())
    kept.set(title="answered, of the peak", xscale="log", ylim=(0, None))
    kept.axhline(0.8, color="grey", linewidth=0.5)
    times.set(title="p99: x refusals, squares health, GetJob, CancelJob", xscale="log", ylabel="milliseconds")
    times.axhline(100, color="grey", linewidth=0.5)
    for axes in (kept, times):
        axes.set_xticks(factors, [f"{factor:g}×" for factor in factors])
        axes.minorticks_off()
    kept.legend(frameon=False, fontsize=7)
    _save(figure, path)


def _soak(samples: dict[str, list[dict[str, float]]], path: Path) -> None:
    kinds = (("mb", "megabytes"), ("handles", "handles"), ("threads", "threads"))
    figure, grid = plt.subplots(len(kinds), 1, figsize=(8, 7), sharex=True)
    for axes, (kind, label) in zip(grid, kinds, strict=True):
        for name, rows in samples.items():
            if rows and kind in rows[0]:
                axes.plot([row["at"] / 60 for row in rows], [row[kind] for row in rows], label=name)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    grid[0].legend(frameon=False, ncols=3)
    grid[-1].set_xlabel("minutes")
    _save(figure, path)


def _others(step: Document) -> float:
    asked: float = step["calls_per_second"] - step["answered_per_second"]
    return asked


def _refused_p99(step: Document) -> float | None:
    return max((other["p99"] for other in step["others"].values()), default=None)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
