"""A trained agent as one safetensors file: parameters, and in the header a JSON text with what rebuilds it.

In: an algorithm. Out: a file, and from it the algorithm again. A file names no class to import: the policy is one of
the known names, or the caller gives the class again.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays

from pchid.checkpoint import load_module_state, write_atomically
from pchid.errors import InputError
from pchid.logged import spaces_agree

if TYPE_CHECKING:
    from pchid.algorithms import HindsightAlgorithm

Agent = TypeVar("Agent", bound="HindsightAlgorithm")

FORMAT = 1
SETTINGS = (
    *("K_max", "K_step", "learning_rate", "batch_size", "updates_per_episode", "buffer_size", "exploration", "noise"),
    *("wander", "persistence", "min_displacement", "hold_goal", "relabel", "passes_per_pair", "seed"),
    *("least_noise", "test_budget", "test_tolerance", "draw", "hold_steps", "symmetries"),
)


def save_agent(agent: HindsightAlgorithm, path: str | Path) -> Path:
    """Write the agent; the file appears whole or not at all."""
    target = with_suffix(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    header = {
        "format": FORMAT,
        "algorithm": type(agent).__name__,
        "policy": _policy_name(agent),
        "policy_settings": agent.policy.settings(),
        "settings": {name: getattr(agent, name) for name in SETTINGS},
        "observation_space": {key: describe(space) for key, space in agent.observation_space.spaces.items()},  # type: ignore[attr-defined]
        "action_space": describe(agent.action_space),
        "steps": agent.num_timesteps,
        "episodes": agent._episode_num,
        "trained": agent._n_updates > 0 or agent._knows,
    }
    arrays = {name: value.detach().cpu().numpy() for name, value in sorted(agent.policy.state_dict().items())}
    # One key in the header: safetensors does not keep the order of several, and the bytes should not vary.
    write_atomically(target, save_arrays(arrays, metadata={"pchid": json.dumps(header, sort_keys=True)}))
    return target


def load_agent(kind: type[Agent], path: str | Path, env: Any, device: torch.device | str, **kwargs: Any) -> Agent:
    """Build the agent that the file describes and give it its parameters."""
    source = Path(path) if Path(path).exists() else with_suffix(path)
    header, arrays = read_agent(source)
    if header.get("algorithm") != kind.__name__:
        found = header.get("algorithm")
        raise InputError(f"{source} holds a {found} agent, not one of {kind.__name__}: load it with {found}.load")
    try:
        return _build(kind, source, header, arrays, env, device, **kwargs)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{source} is damaged: its header and arrays do not make an agent ({reason})") from error


def _build(
    kind: type[Agent],
    source: Path,
    header: dict[str, Any],
    arrays: dict[str, Any],
    env: Any,
    device: torch.device | str,
    **kwargs: Any,
) -> Agent:
    policy = kwargs.pop("policy", header["policy"])
    if policy is None:
        raise InputError(
            f"{source} was saved with a policy class of its own; name it again with load(..., policy=Class)"
        )
    settings = {**header["settings"], **kwargs}
    agent = kind(
        policy, env, policy_kwargs=header["policy_settings"], device=device, _init_setup_model=False, **settings
    )
    stored, actions = _stored_spaces(header)
    if env is None:
        agent.observation_space, agent.action_space = stored, actions
    elif not _same_spaces(agent, stored, actions):
        raise InputError(f"{source} was trained for other observations or actions than this environment has")
    agent.num_timesteps, agent._episode_num = header["steps"], header["episodes"]
    agent._knows = header.get("trained", True)
    agent._from_file = frozenset(header["settings"]) - kwargs.keys()
    agent._setup_model()
    load_module_state(agent.policy, arrays)
    if agent.hold_goal and env is None:
        warnings.warn("without an environment the agent cannot tell a reached goal and will not hold it", stacklevel=4)
    return agent


def start_from(agent: HindsightAlgorithm, source: Path) -> None:
    """Begin with the parameters and the normalisation of a saved agent, which acts from the first step then."""
    header, arrays = read_agent(source)
    if header.get("algorithm") not in ("PCHID", "PEHID"):
        raise InputError(f"{source} holds an agent of {header.get('algorithm')}; only one of PCHID or PEHID can start")
    own = {"policy": _policy_name(agent), **agent.policy.settings()}
    try:
        saved = {"policy": header["policy"], **header["policy_settings"]}
        agree = _same_spaces(agent, *_stored_spaces(header))
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise InputError(f"{source} is damaged: its header makes no agent ({error})") from error
    if not agree:
        raise InputError(f"{source} was trained for other observations or actions than this environment has")
    for name, value in saved.items():
        if own.get(name) != value:
            option = "--policy" if name == "policy" else f"--policy.{name}"
            typed = str(value).replace(" ", "")  # one word on the command line
            raise InputError(f"{source} has {name} {value}, but this run {own.get(name)}: add {option} {typed}")
    try:
        load_module_state(agent.policy, arrays)
    except (KeyError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{source} is damaged: its arrays are not those of its network ({reason})") from error
    agent._knows = True


def _stored_spaces(header: dict[str, Any]) -> tuple[spaces.Dict, spaces.Space[Any]]:
    observations = spaces.Dict({key: rebuild(space) for key, space in header["observation_space"].items()})
    return observations, rebuild(header["action_space"])


def _same_spaces(agent: HindsightAlgorithm, stored: spaces.Dict, actions: spaces.Space[Any]) -> bool:
    """Whether the agent's spaces are those stored, or go with them where these were inferred from arrays."""
    return spaces_agree(stored, agent.observation_space) and agent.action_space == actions


def _policy_name(agent: HindsightAlgorithm) -> str | None:
    """What the policy's class is called here; None for a class of the user's own."""
    return next((name for name, known in agent.policy_aliases.items() if known is agent.policy_class), None)


def read_agent(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of an agent's file."""
    try:
        with safe_open(source, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header: dict[str, Any] = json.loads(metadata["pchid"])
    except FileNotFoundError:
        raise InputError(f"there is no agent at {source}") from None
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise InputError(f"{source} is not an agent that pchid saved, or it is damaged ({error})") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{source} is not of format {FORMAT}, the one that this version reads")
    return header, arrays


def in_half_precision(source: Path) -> bytes:
    """What acts of an agent's file, rounded to half precision: at most half the size, and it acts nearly the same.

    Where an average of the network acts, it takes the network's place.
    """
    header, arrays = read_agent(source)
    if header.get("policy_settings", {}).get("averaging"):
        header["policy_settings"] = {**header["policy_settings"], "averaging": 0.0, "averaging_warmup": False}
        acting = "averaged.module."
        arrays = {
            f"network.{name.removeprefix(acting)}": values for name, values in arrays.items() if name.startswith(acting)
        }
    rounded = {
        name: values.astype(np.float16) if values.dtype == np.float32 else values for name, values in arrays.items()
    }
    return save_arrays(rounded, metadata={"pchid": json.dumps(header, sort_keys=True)})


def with_suffix(path: str | Path) -> Path:
    """The path with `.safetensors` after it, unless it has an ending already."""
    path = Path(path)
    return path if path.suffix else path.with_suffix(".safetensors")


def describe(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as JSON can hold it, bounds included."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n)}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    assert isinstance(space, spaces.Box)
    low, high = (
        np.unique(bound).tolist() if len(np.unique(bound)) == 1 else bound.tolist() for bound in (space.low, space.high)
    )
    return {"kind": "Box", "shape": list(space.shape), "dtype": str(space.dtype), "low": low, "high": high}


def rebuild(description: dict[str, Any]) -> spaces.Space[Any]:
    """The space again."""
    if description["kind"] == "Discrete":
        return spaces.Discrete(description["n"])
    if description["kind"] == "MultiBinary":
        shape = description["shape"]
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)  # Gymnasium tells n and [n] apart
    shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
    low, high = (np.broadcast_to(np.array(description[side], dtype), shape).copy() for side in ("low", "high"))
    return spaces.Box(low, high, shape, dtype.type)
