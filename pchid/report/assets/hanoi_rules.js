// The Tower of Hanoi, as pchid/envs/hanoi.py has it.
// In: positions, the peg of each disc with the smallest first. Out: where moves lead, and how far apart positions are.

const PEGS = 3;
// From one peg to another.
const HANOI_MOVES = [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]];

/** The smallest disc of a peg, or -1. */
function topOf(pegs, peg) {
  return pegs.indexOf(peg);
}

/** The position after a move; one that the rules forbid changes nothing. */
function afterMove(pegs, [source, target]) {
  const [disc, below] = [topOf(pegs, source), topOf(pegs, target)];
  if (disc < 0 || (below >= 0 && below < disc)) return pegs;
  return pegs.map((peg, one) => (one === disc ? target : peg));
}

function samePosition(one, two) {
  return one.every((peg, disc) => peg === two[disc]);
}

/** The policy's move, as it sees positions: for each disc, a one at its peg. */
function hanoiMove(network, pegs, goal) {
  const seen = (position) => position.flatMap((own) => Array.from({ length: PEGS }, (_, peg) => Number(peg === own)));
  return argmax(network.scores(seen(pegs), seen(goal)));
}

/** How many moves the policy takes to the goal, or null if it is not there within the horizon. */
function movesTaken(network, pegs, goal, horizon) {
  let position = pegs;
  for (let count = 0; count <= horizon; count++) {
    if (samePosition(position, goal)) return count;
    position = afterMove(position, HANOI_MOVES[hanoiMove(network, position, goal)]);
  }
  return null;
}

/** The fewest moves from one position to another, by breadth-first search. */
function fewestMoves(pegs, goal) {
  const seen = new Map([[pegs.join(), 0]]);
  const queue = [pegs];
  for (const position of queue) {
    if (samePosition(position, goal)) return seen.get(position.join());
    for (const move of HANOI_MOVES) {
      const next = afterMove(position, move);
      if (seen.has(next.join())) continue;
      seen.set(next.join(), seen.get(position.join()) + 1);
      queue.push(next);
    }
  }
  return null;
}
