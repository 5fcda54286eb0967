"""The compiled loops of value iteration (Sec. 4.1), forward and backward; `kernel.py` calls them.

In: flat planes of obstacles and goals, small kernels, and cells. Out: q-channels at the cells, or gradients of kernels.

A plane lies flat in memory, with one zero after each row and a row of zeros above and below. The zero after a row also
serves as the one before the next, so the nine cells around a cell always lie at the same nine distances from it. No
border is ever tested for, and one loop over the whole plane runs in vector instructions. A value moves by one cell an
iteration, so that only cells are computed from which it still gets to one that is looked at. The backward pass follows
the channels that were the largest; of equal ones, the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

VECTOR = 8
"""Loops over planes run over whole vectors of this many numbers, so a plane has that much room at its end."""
REORDERED = {"contract", "nsz", "reassoc"}
"""Floating point where a long sum may be split into one for each place in a vector."""


def compiled(fastmath: set[str] | None = None) -> Callable[[Function], Function]:
    """Compile at the first call. The result is kept beside the module or, if that is read-only, in the user's cache.

    A product and a sum may become one instruction, which rounds once and not twice; all else is computed as written,
    or in one fixed order (`REORDERED`), so that results depend neither on threads nor on chance.
    """

    def decorate(function: Function) -> Function:
        settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath or {"contract", "nsz"}}
        try:
            return cast(Function, njit(cache=True, **settings)(function))
        except RuntimeError:  # there is no place to write to
            return cast(Function, njit(**settings)(function))

    return decorate


class Cells(NamedTuple):
    """The cells to look at, ordered by map. Each is added to a result: the agent's cell to the result of its pair."""

    first: NDArray[np.int64]
    """(maps + 1,): cells first[m] to first[m + 1] - 1 lie on map m."""
    place: NDArray[np.int64]
    """(cells, 3): result, row and column."""
    weight: Array
    """(cells,): what the q-channels are multiplied by."""


class Weights(NamedTuple):
    """What is learned, or its gradients, then with one entry more for each map in front."""

    folded: Array
    """(19,): the kernels that make the reward from obstacles and from goals, and the bias."""
    of_reward: Array
    """(channels, 9): the kernels that make the constant part of q."""
    of_value: Array
    """(channels, 9): the kernels that make the other part."""


class Memory(NamedTuple):
    """What the backward pass needs of the forward pass, as flat planes."""

    reward: Array
    """(maps, length)."""
    values: Array
    """(maps, iterations, length)."""
    largest: Array
    """(maps, iterations, length): the channels that the values come from."""


# `stride` is the length of a row with its zero, and nine numbers are ordered like
# a 3x3 kernel, row by row. Nines are spelled out: a loop over them would keep the loop around it from running in vector
# instructions. So would signed indices, as they may count from the end; hence `Index`.

Index = np.uintp
ONE = Index(1)
Nine = tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any]


@compiled()
def _nine(kernel: Array) -> Nine:
    return kernel[0], kernel[1], kernel[2], kernel[3], kernel[4], kernel[5], kernel[6], kernel[7], kernel[8]


@compiled()
def _weighed(total: Any, kernel: Nine, plane: Array, i: Any, stride: Any) -> Any:
    """`total` plus the cells around i, times the kernel."""
    above, below = i - stride, i + stride
    total += kernel[0] * plane[above - ONE] + kernel[1] * plane[above] + kernel[2] * plane[above + ONE]
    total += kernel[3] * plane[i - ONE] + kernel[4] * plane[i] + kernel[5] * plane[i + ONE]
    return total + kernel[6] * plane[below - ONE] + kernel[7] * plane[below] + kernel[8] * plane[below + ONE]


@compiled()
def _weighed_twice(one: Any, two: Any, first: Nine, second: Nine, plane: Array, i: Any, stride: Any) -> Any:
    """As `_weighed`, with two kernels: each cell is loaded once."""
    above, below = i - stride, i + stride
    cell = plane[above - ONE]
    one, two = one + first[0] * cell, two + second[0] * cell
    cell = plane[above]
    one, two = one + first[1] * cell, two + second[1] * cell
    cell = plane[above + ONE]
    one, two = one + first[2] * cell, two + second[2] * cell
    cell = plane[i - ONE]
    one, two = one + first[3] * cell, two + second[3] * cell
    cell = plane[i]
    one, two = one + first[4] * cell, two + second[4] * cell
    cell = plane[i + ONE]
    one, two = one + first[5] * cell, two + second[5] * cell
    cell = plane[below - ONE]
    one, two = one + first[6] * cell, two + second[6] * cell
    cell = plane[below]
    one, two = one + first[7] * cell, two + second[7] * cell
    cell = plane[below + ONE]
    return one + first[8] * cell, two + second[8] * cell


@compiled(REORDERED)
def _added(sums: Nine, factor: Any, plane: Array, i: Any, stride: Any) -> Nine:
    """Nine sums, plus the cells around i times a factor."""
    above, below = i - stride, i + stride
    return (
        sums[0] + factor * plane[above - ONE],
        sums[1] + factor * plane[above],
        sums[2] + factor * plane[above + ONE],
        sums[3] + factor * plane[i - ONE],
        sums[4] + factor * plane[i],
        sums[5] + factor * plane[i + ONE],
        sums[6] + factor * plane[below - ONE],
        sums[7] + factor * plane[below],
        sums[8] + factor * plane[below + ONE],
    )


@compiled()
def _span(top: int, bottom: int, stride: Any) -> tuple[Any, Any]:
    """Where rows top to bottom - 1 begin and end in a plane, as whole vectors."""
    start, vector = Index(top + 1) * stride + ONE, Index(VECTOR)
    return start, start + (Index(bottom - top) * stride + vector - ONE - ONE) // vector * vector


@compiled()
def _clear_border(plane: Array, top: int, bottom: int, stride: int) -> None:
    """Zero all but rows top to bottom - 1. Loops over whole planes write into the border too, which must stay zero."""
    plane[: (top + 1) * stride + 1] = 0
    for row in range(top, bottom):
        plane[(row + 2) * stride] = 0
    plane[(bottom + 1) * stride :] = 0


@compiled()
def _lay_out(maps: Array, planes: Array) -> None:
    """Obstacles and goals, (2, height, width), into planes with a border."""
    kinds, height, width = maps.shape
    for kind in range(kinds):
        for row in range(height):
            for column in range(width):
                planes[kind, (row + 1) * (width + 1) + 1 + column] = maps[kind, row, column]


@compiled()
def _find_rewards(inputs: Array, folded: Array, height: int, stride: int, reward: Array) -> None:
    """The reward of each cell."""
    obstacles, goals, of_obstacles, of_goals = inputs[0], inputs[1], _nine(folded[:9]), _nine(folded[9:18])
    bias, step = folded[18], Index(stride)
    start, end = _span(0, height, step)
    for i in range(start, end):
        reward[i] = _weighed(_weighed(bias, of_obstacles, obstacles, i, step), of_goals, goals, i, step)
    _clear_border(reward, 0, height, stride)


@compiled()
def _find_constant(reward: Array, of_reward: Array, height: int, stride: int, constant: Array) -> None:
    """The part of q that stays the same in each iteration, (channels, length)."""
    nothing, step = reward.dtype.type(0), Index(stride)
    start, end = _span(0, height, step)
    for channel in range(len(of_reward)):
        kernel, target = _nine(of_reward[channel]), constant[channel]
        for i in range(start, end):
            target[i] = _weighed(nothing, kernel, reward, i, step)


@compiled()
def _first_value(constant: Array, top: int, bottom: int, stride: int, value: Array, largest: Array) -> None:
    """The first iteration, when there are no values yet that could spread."""
    start, end = _span(top, bottom, Index(stride))
    for i in range(start, end):
        value[i], largest[i] = -np.inf, 0
    for channel in range(len(constant)):
        q, number = constant[channel], np.uint8(channel)
        for i in range(start, end):
            largest[i] = number if q[i] > value[i] else largest[i]
            value[i] = q[i] if q[i] > value[i] else value[i]


@compiled()
def _next_value(
    before: Array, constant: Array, of_value: Array, top: int, bottom: int, stride: int, value: Array, largest: Array
) -> None:
    """One iteration, value = max over channels of constant + kernel * value; two channels at a time."""
    step = Index(stride)
    start, end = _span(top, bottom, step)
    for i in range(start, end):
        value[i], largest[i] = -np.inf, 0
    for channel in range(0, len(of_value), 2):
        other = min(channel + 1, len(of_value) - 1)
        kernel, q, number = _nine(of_value[channel]), constant[channel], np.uint8(channel)
        other_kernel, other_q, other_number = _nine(of_value[other]), constant[other], np.uint8(other)
        for i in range(start, end):
            one, two = _weighed_twice(q[i], other_q[i], kernel, other_kernel, before, i, step)
            best, of = value[i], largest[i]
            of = number if one > best else of
            best = one if one > best else best
            largest[i] = other_number if two > best else of
            value[i] = two if two > best else best


@compiled()
def _read(
    place: Array, weight: Array, constant: Array, of_value: Array, value: Array, stride: int, results: Array
) -> None:
    """The q-channels at the cells of one map: the last iteration, there only."""
    for cell in range(len(place)):
        result, i = place[cell, 0], Index((place[cell, 1] + 1) * stride + place[cell, 2] + 1)
        for channel in range(len(of_value)):
            q = _weighed(constant[channel, i], _nine(of_value[channel]), value, i, Index(stride))
            results[result, channel] += weight[cell] * q


@compiled()
def _box(place: Array) -> tuple[int, int, int, int]:
    """The box around cells: its first row, the row after its last, its first column and the column after its last."""
    top, bottom, left, right = place[0, 1], place[0, 1] + 1, place[0, 2], place[0, 2] + 1
    for cell in range(1, len(place)):
        top, bottom = min(top, place[cell, 1]), max(bottom, place[cell, 1] + 1)
        left, right = min(left, place[cell, 2]), max(right, place[cell, 2] + 1)
    return top, bottom, left, right


@compiled()
def _grown(box: tuple[int, int, int, int], by: int, height: int, width: int) -> tuple[int, int, int, int]:
    """The box with more cells on each side, as far as the map goes."""
    return max(box[0] - by, 0), min(box[1] + by, height), max(box[2] - by, 0), min(box[3] + by, width)


@compiled()
def plan(
    first_map: int,
    last_map: int,
    planes: Array,
    weights: Weights,
    cells: Cells,
    iterations: int,
    memory: Memory,
    results: Array,
) -> None:
    """The forward pass of some maps: fills their part of the memory and their results."""
    _, _, height, width = planes.shape
    _, kept, length = memory.values.shape
    stride, dtype = width + 1, memory.reward.dtype
    inputs, nothing = np.zeros((2, length), dtype), np.zeros(length, dtype)
    constant = np.empty((len(weights.of_reward), length), dtype)
    for number in range(first_map, last_map):
        part = slice(cells.first[number], cells.first[number + 1])
        place, weight, reward = cells.place[part], cells.weight[part], memory.reward[number]
        if len(place) == 0:  # nobody looks at this map
            continue
        _lay_out(planes[number], inputs)
        _find_rewards(inputs, weights.folded, height, stride, reward)
        _find_constant(reward, weights.of_reward, height, stride, constant)
        box, value = _box(place), nothing
        for step in range(iterations):
            top, bottom, _, _ = _grown(box, iterations - step, height, width)
            before, value, largest = value, memory.values[number, step % kept], memory.largest[number, step % kept]
            if step == 0:
                _first_value(constant, top, bottom, stride, value, largest)
            else:
                _next_value(before, constant, weights.of_value, top, bottom, stride, value, largest)
            _clear_border(value, top, bottom, stride)
        _read(place, weight, constant, weights.of_value, value, stride, results)


@compiled()
def _read_back(
    gradient: Array,
    place: Array,
    weight: Array,
    of_value: Array,
    value: Array,
    stride: int,
    to_value: Array,
    to_constant: Array,
    to_kernels: Array,
) -> None:
    """The gradient of `_read`: to the last values, the constant part of q, and the kernels."""
    for cell in range(len(place)):
        i = (place[cell, 1] + 1) * stride + place[cell, 2] + 1
        for channel in range(len(of_value)):
            g = weight[cell] * gradient[place[cell, 0], channel]
            to_constant[channel, i] += g
            for k in range(9):
                neighbour = i + (k // 3 - 1) * stride + k % 3 - 1
                to_kernels[channel, k] += g * value[neighbour]
                to_value[neighbour] += g * of_value[channel, k]


@compiled()
def _next_value_back(
    gradient: Array, largest: Array, of_value: Array, box: Any, stride: int, to_before: Array, to_constant: Array
) -> None:
    """The gradient of `_next_value`: to the values before, and to the constant part of the largest channels.

    A cell gives to the nine cells around it. On the way along a row, `*_here` and `*_next` hold what the last two cells
    gave to the column at hand and to the one after it, so that each cell around is written to three times, not nine.
    """
    top, bottom, left, right = box
    nothing, step = gradient.dtype.type(0), Index(stride)
    for row in range(top, bottom):
        above_here = above_next = level_here = level_next = below_here = below_next = nothing
        start, end = Index((row + 1) * stride + 1 + left), Index((row + 1) * stride + 1 + right)
        for i in range(start, end):
            g, channel, column = gradient[i], largest[i], i - ONE
            kernel = of_value[channel]
            to_constant[channel, i] += g
            to_before[column - step] += above_here + g * kernel[0]
            above_here, above_next = above_next + g * kernel[1], g * kernel[2]
            to_before[column] += level_here + g * kernel[3]
            level_here, level_next = level_next + g * kernel[4], g * kernel[5]
            to_before[column + step] += below_here + g * kernel[6]
            below_here, below_next = below_next + g * kernel[7], g * kernel[8]
        to_before[end - ONE - step] += above_here
        to_before[end - step] += above_next
        to_before[end - ONE] += level_here
        to_before[end] += level_next
        to_before[end - ONE + step] += below_here
        to_before[end + step] += below_next


@compiled()
def _first_value_back(gradient: Array, largest: Array, box: Any, stride: int, to_constant: Array) -> None:
    """The gradient of `_first_value`."""
    top, bottom, left, right = box
    for row in range(top, bottom):
        for i in range((row + 1) * stride + 1 + left, (row + 1) * stride + 1 + right):
            to_constant[largest[i], i] += gradient[i]


@compiled(REORDERED)
def _add_kernel_gradient(gradient: Array, plane: Array, stride: int, to_kernel: Array) -> None:
    """The gradient to a kernel that has gone over `plane`."""
    step, total = Index(stride), _nine(np.zeros(9, plane.dtype))
    for i in range(step + ONE, Index(len(gradient)) - step - ONE):
        total = _added(total, gradient[i], plane, i, step)
    for k in range(9):
        to_kernel[k] += total[k]


@compiled(REORDERED)
def _add_kernel_gradients(gradient: Array, largest: Array, plane: Array, stride: int, to_kernels: Array) -> None:
    """The same for the kernels of all channels, when each cell counts for its largest channel only.

    Going over all cells for each channel is faster than adding each cell to nine sums in memory. Two channels at a
    time, as each cell around is loaded once.
    """
    step, nothing = Index(stride), plane.dtype.type(0)
    for channel in range(0, len(to_kernels), 2):
        number, other_number = np.uint8(channel), np.uint8(channel + 1)
        total = _nine(np.zeros(9, plane.dtype))
        other_total = total
        for i in range(step + ONE, Index(len(gradient)) - step - ONE):
            total = _added(total, gradient[i] if largest[i] == number else nothing, plane, i, step)
            other_total = _added(other_total, gradient[i] if largest[i] == other_number else nothing, plane, i, step)
        for k in range(9):
            to_kernels[channel, k] += total[k]
            if channel + 1 < len(to_kernels):
                to_kernels[channel + 1, k] += other_total[k]


@compiled()
def _find_constant_back(gradient: Array, of_reward: Array, height: int, stride: int, to_reward: Array) -> None:
    """The gradient of `_find_constant` to the rewards: each kernel turned around."""
    step = Index(stride)
    start, end = _span(0, height, step)
    to_reward[:] = 0
    for channel in range(len(of_reward)):
        kernel, source = _nine(of_reward[channel, ::-1]), gradient[channel]
        for i in range(start, end):
            to_reward[i] = _weighed(to_reward[i], kernel, source, i, step)
    _clear_border(to_reward, 0, height, stride)


@compiled()
def go_back(
    first_map: int,
    last_map: int,
    planes: Array,
    weights: Weights,
    cells: Cells,
    memory: Memory,
    gradient: Array,
    gradients: Weights,
) -> None:
    """The backward pass of some maps: fills their part of the gradients to the weights."""
    _, _, height, width = planes.shape
    _, iterations, length = memory.values.shape
    stride, dtype = width + 1, memory.reward.dtype
    inputs, nothing = np.zeros((2, length), dtype), np.zeros(length, dtype)
    to_values, to_reward = np.empty((max(iterations, 1), length), dtype), np.empty(length, dtype)
    to_constant = np.empty((len(weights.of_reward), length), dtype)
    for number in range(first_map, last_map):
        part = slice(cells.first[number], cells.first[number + 1])
        place, weight = cells.place[part], cells.weight[part]
        if len(place) == 0:
            continue
        values, largest, around = memory.values[number], memory.largest[number], _box(place)
        to_folded, to_kernels = gradients.folded[number], gradients.of_value[number]
        to_values[:] = 0
        to_constant[:] = 0
        last = values[iterations - 1] if iterations > 0 else nothing
        _read_back(gradient, place, weight, weights.of_value, last, stride, to_values[-1], to_constant, to_kernels)
        _clear_border(to_values[-1], 0, height, stride)
        for step in range(iterations - 1, -1, -1):
            box = _grown(around, iterations - step, height, width)
            if step == 0:
                _first_value_back(to_values[0], largest[0], box, stride, to_constant)
            else:
                to_before = to_values[step - 1]
                _next_value_back(to_values[step], largest[step], weights.of_value, box, stride, to_before, to_constant)
                _clear_border(to_before, 0, height, stride)
        if iterations > 1:
            # The planes of all iterations lie behind one another, with zeros in between: one long plane.
            after, channels, before = to_values[1:].reshape(-1), largest[1:].reshape(-1), values[:-1].reshape(-1)
            _add_kernel_gradients(after, channels, before, stride, to_kernels)
        for channel in range(len(to_constant)):
            to_kernel = gradients.of_reward[number, channel]
            _add_kernel_gradient(to_constant[channel], memory.reward[number], stride, to_kernel)
        _find_constant_back(to_constant, weights.of_reward, height, stride, to_reward)
        _lay_out(planes[number], inputs)
        _add_kernel_gradient(to_reward, inputs[0], stride, to_folded[:9])
        _add_kernel_gradient(to_reward, inputs[1], stride, to_folded[9:18])
        to_folded[18] = to_reward.sum()
