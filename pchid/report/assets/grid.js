// The GridWorld playground: a map to draw on, and a trained policy that plans on it at every change.
// In: the policies of the data, pointer and keys. Out: the drawing, and a sentence about it.

class GridPlayground {
  constructor(policies) {
    this.policies = policies.map((policy) => ({ ...policy, network: new PlanningNetwork(policy.network) }));
    this.part = Object.fromEntries(
      ["map", "says", "policy", "shortest", "sizes", "random", "clear", "arrows", "values", "way", "origin"].map(
        (name) => [name, document.getElementById(`grid-${name}`)],
      ),
    );
    this.view = new GridView(this.part.map);
    const first = this.policies.find((policy) => policy.size === 16) ?? this.policies[0];
    this.part.sizes.append(...this.policies.map((policy) => this.sizeChoice(policy, policy === first)));
    this.part.random.onclick = () => this.begin(randomMap(this.policy.size, this.policy.n_obstacles));
    this.part.clear.onclick = () => this.begin({ ...this.state, obstacle: emptyMap(this.policy.size) });
    for (const toggle of ["arrows", "values", "way"]) this.part[toggle].onchange = () => this.draw();
    this.listen();
    this.choose(first);
  }

  sizeChoice(policy, checked) {
    const box = element("input", { type: "radio", name: "grid-size", value: policy.size, checked });
    box.onchange = () => this.choose(policy);
    return element("label", {}, box, element("span", {}, `${policy.size} × ${policy.size}`));
  }

  /** Another policy with its size of maps; the first map is the same for every reader. */
  choose(policy) {
    this.policy = policy;
    const of = policy.seeds > 1 ? `, the best of ${policy.seeds} seeds` : "";
    this.part.origin.textContent =
      `Policy: ${policy.from}${of}. It reached the goal on ${(100 * policy.success).toFixed(1)} % of unseen maps.`;
    this.begin(exampleMap(policy.size, policy.n_obstacles));
  }

  begin({ obstacle, start, goal }) {
    this.state = { size: this.policy.size, obstacle, start, goal, cursor: start };
    this.change();
  }

  /** Plan again, and say what came out. */
  change() {
    const state = this.state;
    const { size, obstacle, start, goal } = state;
    state.plan = planned(this.policy.network, obstacle, goal, size);
    state.way = walked(state.plan.moves, obstacle, size, start, goal, this.policy.horizon);
    state.best = shortest(obstacle, size, start, goal);
    this.draw();
    const moves = state.way.at(-1) === goal ? state.way.length - 1 : null;
    const best = state.best ? state.best.length - 1 : null;
    this.part.policy.textContent = moves === null ? "no arrival" : plural(moves, "move");
    this.part.shortest.textContent = best === null ? "none" : plural(best, "move");
    this.part.says.textContent = outcome(moves, best, this.policy.horizon);
  }

  draw() {
    const { arrows, values, way } = this.part;
    this.view.draw(this.state, { arrows: arrows.checked, values: values.checked, way: way.checked });
    const { size } = this.state;
    this.part.map.setAttribute("aria-label", `Map of ${size} by ${size} cells, to be edited by keys`);
  }

  /** Make a cell a wall, or free; the border, start and goal stay as they are. */
  paint(cell, blocked) {
    const { obstacle, start, goal, size } = this.state;
    if (onBorder(cell, size) || cell === start || cell === goal || obstacle[cell] === blocked) return;
    obstacle[cell] = blocked;
    this.changed = true;
  }

  /** Put the start or the goal on a free cell. */
  put(name, cell) {
    const other = name === "start" ? this.state.goal : this.state.start;
    if (this.state.obstacle[cell] || cell === other || cell === this.state[name]) return;
    this.state[name] = cell;
    this.changed = true;
  }

  listen() {
    const map = this.part.map;
    let drag = null;
    const go = (cell) => {
      if (drag.what !== "paint") this.put(drag.what, cell);
      else for (const passed of between(drag.at, cell, this.state.size)) this.paint(passed, drag.blocked);
      drag.at = cell;
      this.state.cursor = cell;
      if (this.changed) this.change();
      else this.draw();
      this.changed = false;
    };
    map.onpointerdown = (event) => {
      if (event.button) return;
      const cell = this.view.cellAt(event);
      const what = { [this.state.start]: "start", [this.state.goal]: "goal" }[cell] ?? "paint";
      drag = { what, at: cell, blocked: this.state.obstacle[cell] ? 0 : 1 };
      map.setPointerCapture(event.pointerId);
      go(cell);
    };
    map.onpointermove = (event) => {
      if (drag && this.view.cellAt(event) !== drag.at) go(this.view.cellAt(event));
    };
    map.onpointerup = map.onpointercancel = () => {
      drag = null;
    };
    map.onkeydown = (event) => this.press(event);
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { state } = this;
    const { size, cursor } = state;
    const step = { ArrowUp: -size, ArrowDown: size, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step !== undefined) {
      if (!onBorder(cursor + step, size)) state.cursor = cursor + step;
      this.draw();
      speak(this.cellSentence());
    } else if (event.key === " ") {
      this.paint(cursor, state.obstacle[cursor] ? 0 : 1);
    } else if (event.key === "s" || event.key === "g") {
      const name = event.key === "s" ? "start" : "goal";
      if (cursor !== (name === "start" ? state.goal : state.start)) this.paint(cursor, 0);
      this.put(name, cursor);
    } else return;
    event.preventDefault();
    if (this.changed) this.change();
    this.changed = false;
  }

  cellSentence() {
    const { size, cursor, obstacle, start, goal, plan } = this.state;
    const what = cursor === goal ? "goal" : cursor === start ? "start" : obstacle[cursor] ? "wall" : "free";
    const move = plan.moves[cursor] < 0 ? "" : `, the policy goes ${DIRECTIONS[plan.moves[cursor]]}`;
    return `Row ${Math.floor(cursor / size)}, column ${cursor % size}: ${what}${move}`;
  }
}

/** What came of a map, in a sentence. */
function outcome(moves, best, horizon) {
  if (best === null) return "No path leads to the goal, so no policy can reach it.";
  if (moves === null) return `The policy does not reach the goal in ${horizon} moves; a shortest path takes ${best}.`;
  if (moves === best) return `The policy reaches the goal in ${plural(moves, "move")}, and no path is shorter.`;
  return `The policy reaches the goal in ${plural(moves, "move")}; a shortest path takes ${best}.`;
}

/** The cells on the line between two, so that a quick stroke leaves no gaps. */
function between(from, to, size) {
  const [row, column] = [Math.floor(from / size), from % size];
  const [rows, columns] = [Math.floor(to / size) - row, (to % size) - column];
  const steps = Math.max(Math.abs(rows), Math.abs(columns), 1);
  return Array.from({ length: steps + 1 }, (_, i) => {
    return (row + Math.round((rows * i) / steps)) * size + column + Math.round((columns * i) / steps);
  });
}

/** A map to begin with: random, but the same each time, and with some way to go. */
function exampleMap(size, count) {
  let seed = 20;
  const random = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
  for (;;) {
    const found = proposed(Array.from({ length: 2 + START_TRIES + 4 * count }, random), size, count);
    if (found && shortest(found.obstacle, size, found.start, found.goal).length > size * 0.85) return found;
  }
}

if (report.grid) {
  const playground = new GridPlayground(report.grid);
  const policyOf = (size) => playground.policies.find((policy) => policy.size === size) ?? playground.policies[0];
  const flat = ([row, column], size) => row * size + column;
  const nested = (cells, size) => {
    return Array.from({ length: size }, (_, row) => [...cells.slice(row * size, (row + 1) * size)]);
  };
  /** The policy's move in each cell of a map of rows, -1 where there is none, and its values. */
  window.pchid.plan = (rows, goal) => {
    const size = rows.length;
    const found = planned(policyOf(size).network, rows.flat(), flat(goal, size), size);
    return { moves: nested(found.moves, size), values: nested(found.values, size) };
  };
  /** The cells that the policy passes, and the length of a shortest path, or null. */
  window.pchid.walk = (rows, start, goal) => {
    const [size, obstacle] = [rows.length, rows.flat()];
    const policy = policyOf(size);
    const [from, to] = [flat(start, size), flat(goal, size)];
    const { moves } = planned(policy.network, obstacle, to, size);
    const way = walked(moves, obstacle, size, from, to, policy.horizon);
    const best = shortest(obstacle, size, from, to);
    return { way: way.map((cell) => [Math.floor(cell / size), cell % size]), best: best && best.length - 1 };
  };
  window.pchid.propose = (numbers, size, count) => {
    const found = proposed(numbers, size, count);
    return found && { obstacle: nested(found.obstacle, size), start: found.start, goal: found.goal };
  };
  window.pchid.grid = playground;
}
