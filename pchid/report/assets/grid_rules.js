// GridWorld's rules, as pchid/envs/grid_world.py has them.
// In: a flat map (1 = blocked), cells as row * size + column. Out: where moves lead, ways to the goal, random maps.

// North, north-east, then on clockwise to north-west, as (row, column) steps.
const GRID_MOVES = [[-1, 0], [-1, 1], [0, 1], [1, 1], [1, 0], [1, -1], [0, -1], [-1, -1]];
// Starts that are tried on a map before another map is drawn.
const START_TRIES = 2;
const DIRECTIONS = ["north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west"];

/** Where a move leads: into a blocked cell or off the map, nowhere. Between two blocked cells one may pass. */
function moved(obstacle, size, cell, move) {
  const row = Math.floor(cell / size) + GRID_MOVES[move][0];
  const column = (cell % size) + GRID_MOVES[move][1];
  const inside = row >= 0 && row < size && column >= 0 && column < size;
  return inside && !obstacle[row * size + column] ? row * size + column : cell;
}

/** The policy's move in every free cell, -1 elsewhere and at the goal, and how good it takes each cell to be. */
function planned(network, obstacle, goal, size) {
  const scores = network.scores(obstacle, goal, size);
  const moves = new Int8Array(size * size).fill(-1);
  const values = new Float32Array(size * size);
  for (let cell = 0; cell < size * size; cell++) {
    const own = scores.subarray(cell * network.outputs, (cell + 1) * network.outputs);
    const best = argmax(own);
    values[cell] = own[best];
    if (!obstacle[cell] && cell !== goal) moves[cell] = best;
  }
  return { moves, values };
}

/** The cells that the policy passes from a start, at most `horizon` moves long. */
function walked(moves, obstacle, size, start, goal, horizon) {
  const way = [start];
  while (way.at(-1) !== goal && way.length <= horizon) way.push(moved(obstacle, size, way.at(-1), moves[way.at(-1)]));
  return way;
}

/** A shortest way from start to goal by breadth-first search, or null. */
function shortest(obstacle, size, start, goal) {
  const before = new Int32Array(size * size).fill(-1);
  before[goal] = goal;
  const queue = [goal]; // backwards, so that the way can be read off from its start
  for (let i = 0; i < queue.length && before[start] < 0; i++) {
    for (let move = 0; move < GRID_MOVES.length; move++) {
      const next = moved(obstacle, size, queue[i], move);
      if (before[next] >= 0) continue;
      before[next] = queue[i];
      queue.push(next);
    }
  }
  if (before[start] < 0) return null;
  const way = [start];
  while (way.at(-1) !== goal) way.push(before[way.at(-1)]);
  return way;
}

/** A map with its border and nothing else. */
function emptyMap(size) {
  return Uint8Array.from({ length: size * size }, (_, cell) => Number(onBorder(cell, size)));
}

function onBorder(cell, size) {
  const [row, column] = [Math.floor(cell / size), cell % size];
  return row === 0 || column === 0 || row === size - 1 || column === size - 1;
}

/**
 * A map of rectangles, a goal, and a start that can reach it, from random numbers; without such a start, null.
 * The numbers are two for the goal, START_TRIES for starts, and four for each rectangle, as in GridWorldVectorEnv.
 */
function proposed(numbers, size, count) {
  const [goalRow, goalColumn] = [0, 1].map((i) => 1 + Math.floor(numbers[i] * (size - 2)));
  const obstacle = emptyMap(size);
  for (let i = 0; i < count; i++) {
    const own = numbers.slice(2 + START_TRIES + 4 * i, 6 + START_TRIES + 4 * i);
    const [top, left] = [own[2], own[3]].map((number) => 1 + Math.floor(number * (size - 1)));
    const [bottom, right] = [top, left].map((corner, side) => {
      return Math.min(corner + Math.max(Math.ceil((own[side] * size) / 4), 1), size);
    });
    if (top <= goalRow && goalRow < bottom && left <= goalColumn && goalColumn < right) continue;
    for (let row = top; row < bottom; row++) obstacle.fill(1, row * size + left, row * size + right);
  }
  const goal = goalRow * size + goalColumn;
  const free = [...obstacle.keys()].filter((cell) => !obstacle[cell] && cell !== goal);
  for (const draw of numbers.slice(2, 2 + START_TRIES)) {
    const start = free[Math.floor(draw * free.length)];
    if (start !== undefined && shortest(obstacle, size, start, goal)) return { obstacle, start, goal };
  }
  return null;
}

/** Draw until there is one. */
function randomMap(size, count) {
  for (;;) {
    const numbers = Array.from({ length: 2 + START_TRIES + 4 * count }, Math.random);
    const found = proposed(numbers, size, count);
    if (found) return found;
  }
}
