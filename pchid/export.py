"""A trained policy as one ONNX file: it runs where there is neither pchid nor torch nor Python.

In: the directory of a run or of `pchid fit`, or an agent. Out: the file, put in place only after onnxruntime has given
the same actions as the torch policy.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pchid
from pchid.algorithms import PCHID, PEHID, HindsightAlgorithm
from pchid.checkpoint import write_atomically
from pchid.combine.agent import CombinedAgent
from pchid.envs.make import make_probe
from pchid.envs.sb3 import GoalVecEnv
from pchid.errors import InputError, RunError
from pchid.graphs import PolicyGraph, plain_planning, policy_graph
from pchid.logged import Within
from pchid.networks.planning import PlanningNetwork
from pchid.policies import GoalMlp
from pchid.runs import RunDirectory
from pchid.saving import read_agent
from pchid.training import Agent, predictor, trusted_env

Array = NDArray[Any]
COMPARED = 1000
TOLERANCE = 1e-5
"""Of an action, or between two scores that tie, relative to their scale where that is more than 1."""


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees."""

    path: Path
    size: int
    """Bytes."""
    inputs: dict[str, str]
    """Type and shape of each."""
    outputs: dict[str, str]
    compared: int
    """Observations on which onnxruntime and torch were compared."""
    difference: float
    """The largest, of continuous actions or of the scores of discrete ones."""
    ties: int
    """Discrete actions that differ because their scores are equal up to rounding."""


@dataclass(frozen=True)
class _Source:
    """An agent, and what is known of where it comes from."""

    agent: Agent
    env: str | None
    env_options: dict[str, Any]
    method: str


def export_policy(source: Path, out: Path, env_id: str | None = None, hold: bool = True) -> Exported:
    """Export the policy of a run directory, of a directory of `pchid fit`, or of an agent's file."""
    check_packages()
    found = _read(source, env_id, hold)
    agent = found.agent
    if isinstance(agent, CombinedAgent):
        assert found.env is not None
        observations = played_observations(found.env, found.env_options)
    else:
        observations = random_observations(agent)
    return export_agent(agent, out, hold, observations, {"env": found.env or "", "method": found.method})


def export_agent(
    agent: Agent,
    out: Path,
    hold: bool = True,
    observations: dict[str, Array] | None = None,
    metadata: dict[str, str] | None = None,
) -> Exported:
    """Export an agent; `observations`, by key and (B, ...), are what it is compared on, by default random ones."""
    check_packages()
    if observations is None:
        if not isinstance(agent, HindsightAlgorithm):
            raise InputError("give observations that the exported policy can be compared on")
        observations = random_observations(agent)
    graph = policy_graph(agent, hold)
    if graph.hold is not None:
        observations = _near_goals(observations, graph.hold.threshold)
    unheld = isinstance(agent, HindsightAlgorithm) and graph.hold is None
    with _without_hold(agent) if unheld else contextlib.nullcontext():
        actions = predictor(agent)(observations)
    values = [np.ascontiguousarray(observations[key]) for key in graph.inputs]
    model = to_onnx(graph, values, {"version": pchid.__version__, **(metadata or {})})
    difference, ties = compare(model, graph, values, actions)
    data: bytes = model.SerializeToString()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, data)
    inputs, outputs = ({one.name: _described(one) for one in side} for side in (model.graph.input, model.graph.output))
    return Exported(out, len(data), inputs, outputs, len(actions), difference, ties)


def to_onnx(graph: PolicyGraph, values: list[Array], metadata: dict[str, str]) -> Any:
    """The graph as a checked ONNX model, for any batch size and, where the network plans, for any size of map."""
    import onnx

    batch = torch.export.Dim("batch", min=1)
    dims: list[dict[int, Any]] = [{0: batch} for _ in values]
    if any(isinstance(module, PlanningNetwork) for module in graph.modules()):
        dims[graph.inputs.index("observation")] |= {
            2: torch.export.Dim("height", min=3),
            3: torch.export.Dim("width", min=3),
        }
    examples = tuple(torch.from_numpy(value[:3]) for value in values)
    with torch.no_grad(), plain_planning(graph), _silence():
        program = torch.onnx.export(
            graph,
            examples,
            dynamo=True,
            verbose=False,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=(tuple(dims),),
        )
    assert program is not None
    model = program.model_proto
    _forget_origin(model)
    onnx.helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return model


def compare(model: Any, graph: PolicyGraph, values: list[Array], actions: Array) -> tuple[float, int]:
    """The largest difference between onnxruntime and torch, and how many ties; a real one is an error."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    got = session.run(None, dict(zip(graph.inputs, values, strict=True)))
    alone = session.run(None, {key: value[:1] for key, value in zip(graph.inputs, values, strict=True)})
    if any(not np.allclose(one, many[:1], TOLERANCE, TOLERANCE) for one, many in zip(alone, got, strict=True)):
        raise RunError("the exported policy acts otherwise on one observation than on many; nothing was written")
    if not graph.discrete:
        difference = float(np.abs(got[0] - actions).max())
        if got[0].shape != actions.shape or not difference <= TOLERANCE * max(1.0, float(np.abs(actions).max())):
            raise RunError(f"the exported policy differs from the trained one by {difference:.2g}; nothing was written")
        return difference, 0
    with torch.no_grad(), plain_planning(graph):
        scores = graph(*map(torch.from_numpy, values))[1].numpy()
    rows, scale = np.arange(len(actions)), max(1.0, float(np.abs(scores).max()))
    lost = np.abs(scores[rows, got[0]] - scores[rows, actions])
    wrong = (got[0] != actions) & ~(lost <= TOLERANCE * scale)
    if wrong.any():
        raise RunError(f"the exported policy decides otherwise on {wrong.sum()} of {len(wrong)}; nothing was written")
    return float(np.abs(got[1] - scores).max()), int((got[0] != actions).sum())


def random_observations(agent: HindsightAlgorithm, count: int = COMPARED, seed: int = 0) -> dict[str, Array]:
    """Observations such as the policy was trained on: maps, or numbers with the mean and spread that it has seen."""
    rng, network = np.random.default_rng(seed), agent.policy.acting
    space = agent.observation_space
    assert isinstance(space, spaces.Dict)
    if isinstance(network, PlanningNetwork):
        return _random_maps(space, rng, count)
    drawn = {}
    for key, normaliser in (("observation", "observation"), ("achieved_goal", "goal"), ("desired_goal", "goal")):
        own: Any = space[key]
        values: Array = rng.normal(size=(count, int(np.prod(own.shape))))
        if isinstance(network, GoalMlp):
            seen: Any = getattr(network, f"{normaliser}_normaliser")
            values = seen.mean.cpu().numpy() + 1.5 * np.sqrt(seen.variance.cpu().numpy()) * values
        values = values.reshape(count, *own.shape)
        if isinstance(own, spaces.MultiBinary):
            values = rng.integers(2, size=values.shape)
        elif isinstance(own, spaces.Box):
            values = np.clip(values if own.dtype.kind == "f" else np.rint(values), own.low, own.high)
        drawn[key] = values.astype(own.dtype)
    return drawn


def played_observations(env_id: str, options: dict[str, Any], count: int = COMPARED) -> dict[str, Array]:
    """Observations of episodes of random actions."""
    environment = make_probe(env_id, min(count, 50), **options)
    environment.action_space.seed(0)
    seen: list[dict[str, Array]] = []
    for step in range(-(-count // environment.num_envs)):
        if step % 20 == 0:
            observations, _ = environment.reset(seed=step)
        seen.append({key: values.copy() for key, values in observations.items()})
        observations = environment.step(environment.action_space.sample())[0]
    environment.close()
    return {key: np.concatenate([one[key] for one in seen])[:count] for key in seen[0]}


def check_packages() -> None:
    """Refuse to begin without what the export needs."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f"an export needs the package {error.name}: pip install 'pchid[onnx]'") from None


def _read(source: Path, env_id: str | None, hold: bool) -> _Source:
    """The agent of a directory or of a file."""
    directory = RunDirectory(source)
    config: dict[str, Any] = directory.read_acting() if source.is_dir() else {}
    path = directory.policy if source.is_dir() else source
    header, _ = read_agent(path)
    kind, settings = header.get("algorithm"), header.get("settings")
    if not isinstance(settings, dict):
        raise InputError(f"{path} is damaged: it has no settings")
    if kind == CombinedAgent.__name__:
        config = config or settings
        try:
            env = trusted_env(config["env"], env_id)
            options = config["env_options"]
            agent: Agent = CombinedAgent.load(path, GoalVecEnv.make(env, 1, **options), "cpu")
            return _Source(agent, env, options, config["method"])
        except (KeyError, TypeError) as error:
            raise InputError(f"{path} is damaged: its settings make no agent ({error})") from None
    known: str | None = trusted_env(config.get("env"), env_id) if env_id is not None else config.get("env")
    environment = None
    if known is not None and hold and settings.get("hold_goal"):  # it must be asked what holds
        options = config.get("env_options", {})
        environment = GoalVecEnv.make(trusted_env(config.get("env"), env_id), 1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = (PEHID if kind == PEHID.__name__ else PCHID).load(path, environment, "cpu", test="none")
    if environment is None and isinstance(config.get("tolerance"), float):
        loaded.is_success = Within(config["tolerance"])
    return _Source(loaded, known, config.get("env_options", {}), config.get("method", str(kind).lower()))


def _random_maps(space: spaces.Dict, rng: np.random.Generator, count: int) -> dict[str, Array]:
    shape = space["observation"].shape
    assert shape is not None
    height, width = shape[1:]
    observation = np.zeros((count, 2, height, width), space["observation"].dtype)
    observation[:, 0] = rng.random((count, height, width)) < 0.25
    agent, goal = (np.stack([rng.integers(height, size=count), rng.integers(width, size=count)], 1) for _ in range(2))
    observation[np.arange(count), 1, agent[:, 0], agent[:, 1]] = 1
    kind = space["desired_goal"].dtype
    return {"observation": observation, "achieved_goal": agent.astype(kind), "desired_goal": goal.astype(kind)}


def _near_goals(observations: dict[str, Array], threshold: float) -> dict[str, Array]:
    """Every second observation with a goal that is reached, or nearly."""
    desired, achieved = observations["desired_goal"].copy(), observations["achieved_goal"]
    reach = threshold / np.sqrt(desired[0].size)
    desired[::2] = achieved[::2] + np.random.default_rng(1).uniform(-2.0, 2.0, achieved[::2].shape) * reach
    return {**observations, "desired_goal": desired}


@contextlib.contextmanager
def _without_hold(agent: Any) -> Iterator[None]:
    held, agent._null_action = agent._null_action, None
    try:
        yield
    finally:
        agent._null_action = held


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """The exporter tells a lot about itself, on every channel."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(io.StringIO()):
                yield
    finally:
        logging.disable(before)


def _forget_origin(model: Any) -> None:
    """Drop the stack traces that the exporter leaves in the file: they name places on this machine."""
    parts = [model.graph.node, model.graph.value_info, model.graph.input, model.graph.output, model.graph.initializer]
    for part in [model.graph, *(one for several in parts for one in several)]:
        del part.metadata_props[:]
        part.doc_string = ""


def _described(value: Any) -> str:
    import onnx

    kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    dims = [dim.dim_param or str(dim.dim_value) for dim in value.type.tensor_type.shape.dim]
    return f"{kind} ({', '.join(dims)})"
