"""Trained policies for the playground: their weights, and what they were trained on.

In: the run directories that an experiment keeps with its results. Out: plain data; arrays are base64 of
little-endian float32, which a page reads without a parser.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pchid.envs.make import make_probe
from pchid.errors import InputError
from pchid.networks.planning import PlanningNetwork
from pchid.policies import GoalMlp, RunningNormaliser
from pchid.report.collect import Found
from pchid.runs import RunDirectory
from pchid.training import load_policy

ENVIRONMENTS = {"GridWorld-v0": "grid", "Hanoi-v0": "hanoi"}
NETWORKS: dict[str, type[nn.Module]] = {"grid": PlanningNetwork, "hanoi": GoalMlp}
SHARED = {"grid": ("size", "n_obstacles", "horizon"), "hanoi": ("n_discs", "horizon")}
"""What the page must know of an environment to play in it; the first tells which policy fits."""


def playground(experiments: list[Found]) -> dict[str, list[dict[str, Any]]]:
    """By domain, for each size of it the kept policy that ended best; without any, the domain is left out."""
    best: dict[str, dict[int, dict[str, Any]]] = {}
    for experiment in experiments:
        for label, (path, success, seeds) in best_policies(experiment).items():
            directory = RunDirectory(path)
            config = directory.read_config()
            kind = ENVIRONMENTS.get(config["env"])
            if kind is None:
                continue
            network: Any = getattr(getattr(load_policy(directory, config), "policy", None), "acting", None)
            if not isinstance(network, NETWORKS[kind]):
                continue
            environment: Any = make_probe(config["env"], 1, **config["env_options"])
            shared = {name: getattr(environment, name) for name in SHARED[kind]}
            origin = {"from": f"{experiment.name}, row {label}, seed {config['seed']}", "seeds": seeds}
            one = {**shared, **origin, "success": success, "network": export(network)}
            before = best.setdefault(kind, {}).setdefault(shared[SHARED[kind][0]], one)
            if success > before["success"]:
                best[kind][shared[SHARED[kind][0]]] = one
    return {kind: [of_size[size] for size in sorted(of_size)] for kind, of_size in best.items()}


def best_policies(experiment: Found) -> dict[str, tuple[Path, float, int]]:
    """By row: the kept run directory of the seed that ended best, its final success, and of how many it is the best."""
    best = {}
    for label, summaries in experiment.results.summaries.items():
        paths = {
            path: summary["final_success"]
            for summary in summaries
            if (path := experiment.results.folder / "policies" / f"{label}-{summary['seed']:.0f}").is_dir()
        }
        if paths:
            path = max(paths, key=lambda path: paths[path])
            best[label] = (path, paths[path], len(paths))
    return best


def export(network: nn.Module) -> dict[str, Any]:
    """What a network computes with, as JSON can hold it."""
    if isinstance(network, PlanningNetwork):
        return export_planning(network)
    if isinstance(network, GoalMlp):
        return export_perceptron(network)
    raise InputError(f"a {type(network).__name__} cannot be shown on a page, only planning networks and perceptrons")


@torch.no_grad()
def export_planning(network: PlanningNetwork) -> dict[str, Any]:
    """The kernels of value iteration; the readout becomes a matrix, whatever it was."""
    folded, of_reward, of_value = network.weights()
    readout = network.read(torch.eye(len(of_value), dtype=of_value.dtype)).T
    arrays = {"folded": folded, "of_reward": of_reward, "of_value": of_value, "readout": readout}
    return {"kind": "planning", "iterations": network.iterations, **{name: packed(a) for name, a in arrays.items()}}


@torch.no_grad()
def export_perceptron(network: GoalMlp) -> dict[str, Any]:
    """The layers, and the normalisation before them, which is computed in double precision: these are plain numbers."""
    layers = [
        {"weight": packed(layer.weight), "bias": packed(layer.bias)}
        for layer in network.layers
        if isinstance(layer, nn.Linear)
    ]
    return {
        "kind": "perceptron",
        "agreement": network.agreement,
        "observation": _normaliser(network.observation_normaliser),
        "goal": _normaliser(network.goal_normaliser),
        "layers": layers,
    }


def packed(array: Tensor) -> dict[str, Any]:
    """An array as its shape and its numbers."""
    numbers = np.ascontiguousarray(array.detach().cpu().numpy(), dtype="<f4")
    return {"shape": list(numbers.shape), "float32": base64.b64encode(numbers.tobytes()).decode()}


def _normaliser(normaliser: RunningNormaliser) -> dict[str, Any]:
    variance = torch.sqrt(normaliser.variance + 1e-8)
    return {"mean": normaliser.mean.tolist(), "deviation": variance.tolist(), "clip": normaliser.clip}
