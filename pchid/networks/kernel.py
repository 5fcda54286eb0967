"""Value iteration on GridWorld's maps (Sec. 4.1), compiled: the function and the gradients of the network in torch.

In: maps with their goals, the network's small kernels, and the cells to look at. Out: each q-channel at these cells.

The loops themselves are in `loops.py`.

This module needs numba. `pchid.networks.vin` imports it at the first forward pass, and does without if it has to.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pchid.networks.loops import VECTOR, Cells, Memory, Weights, go_back, plan

Array = NDArray[Any]

MAX_CHANNELS = 256
"""The number of a channel is kept in one byte."""
MAPS_A_THREAD = 8
"""For fewer, starting a thread costs more than it saves."""


def agent_cells(agent: Tensor, map_of: Tensor | slice) -> Cells:
    """Where agents (B, height, width) stand, when pair b is on map map_of[b]; normally there is one cell for each."""
    pairs, height, width = agent.shape
    pair, place = np.divmod(np.flatnonzero(agent.numpy() != 0), height * width)
    cells = np.stack([pair, place // width, place % width], axis=1)
    map_of_pair = np.arange(pairs)[map_of] if isinstance(map_of, slice) else map_of.numpy()
    cells = cells[np.argsort(map_of_pair[pair], kind="stable")]
    maps = np.arange(map_of_pair.max(initial=-1) + 2)
    return Cells(np.searchsorted(map_of_pair[cells[:, 0]], maps), cells, agent.numpy()[tuple(cells.T)])


def all_cells(maps: int, height: int, width: int) -> Cells:
    """Every cell of every map, each with a result of its own."""
    cells = np.indices((maps, height, width)).reshape(3, -1).T.copy()
    cells[:, 0] = np.arange(len(cells))
    return Cells(np.arange(maps + 1) * height * width, cells, np.ones(len(cells)))


def q_at_cells(
    planes: Tensor,
    folded: Tensor,
    of_reward: Tensor,
    of_value: Tensor,
    cells: Cells,
    results: int,
    iterations: int,
) -> Tensor:
    """The q-channels at cells, (results, channels), with gradients to the three `Weights`.

    `planes` (maps, 2, height, width) holds obstacles and goals.
    """
    cells = cells._replace(weight=cells.weight.astype(planes.numpy().dtype, copy=False))
    weights = (folded.contiguous(), of_reward.contiguous(), of_value.contiguous())
    if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
        q: Tensor = _Planning.apply(planes, *weights, cells, results, iterations)  # type: ignore[no-untyped-call]
        return q
    arrays = Weights(*(weight.detach().numpy() for weight in weights))
    return _forward(planes, arrays, cells, results, iterations, kept=min(iterations, 2))[0]


class _Planning(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        planes, *weights, cells, results, iterations = inputs
        arrays = Weights(*(weight.numpy() for weight in weights))
        q, ctx.memory = _forward(planes, arrays, cells, results, iterations, kept=iterations)
        ctx.cells = cells
        ctx.save_for_backward(planes, *weights)
        return q

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        planes, *arrays = (tensor.numpy() for tensor in ctx.saved_tensors)
        weights, maps = Weights(*arrays), len(planes)
        # Each map has gradients of its own, which are added up in order: the same sum on any number of threads.
        gradients = Weights(*(np.zeros((maps, *array.shape), array.dtype) for array in weights))
        arguments = (planes, weights, ctx.cells, ctx.memory, gradient.contiguous().numpy(), gradients)
        _share_out(go_back, maps, *arguments)
        return None, *(torch.from_numpy(partial.sum(axis=0)) for partial in gradients), None, None, None


def _forward(
    planes: Tensor, weights: Weights, cells: Cells, results: int, iterations: int, kept: int
) -> tuple[Tensor, Memory]:
    """The q-channels at cells; values are remembered of the last `kept` iterations."""
    maps, _, height, width = planes.shape
    length, dtype = (height + 2) * (width + 1) + 1 + VECTOR, weights.folded.dtype
    memory = Memory(
        reward=np.empty((maps, length), dtype),
        values=np.empty((maps, kept, length), dtype),
        largest=np.empty((maps, kept, length), np.uint8),
    )
    q = np.zeros((results, len(weights.of_value)), dtype)
    _share_out(plan, maps, planes.numpy(), weights, cells, iterations, memory, q)
    return torch.from_numpy(q), memory


def _share_out(function: Callable[..., None], maps: int, *arguments: Any) -> None:
    """Run `function(first, last, ...)` over all maps on as many threads as torch may use.

    The threads live for one call: a pool that stays, like numba's own, would not survive a fork of the process.
    """
    count = max(1, min(torch.get_num_threads(), maps // MAPS_A_THREAD))
    bounds = [maps * part // count for part in range(count + 1)]
    others = [Thread(target=function, args=(*bounds[part : part + 2], *arguments)) for part in range(1, count)]
    for thread in others:
        thread.start()
    function(*bounds[:2], *arguments)
    for thread in others:
        thread.join()
