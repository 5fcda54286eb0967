// The map as a drawing.
// In: a map, what the policy makes of it, and what is to be seen. Out: the inside of an <svg>, in cells of one unit.

class GridView {
  constructor(drawing) {
    this.drawing = drawing;
    this.size = 0;
  }

  /** Cells that stay and change their looks; marks and ways above them. */
  build(size) {
    this.size = size;
    this.cells = Array.from({ length: size * size }, (_, cell) => {
      return shape("rect", { x: cell % size, y: Math.floor(cell / size), width: 1, height: 1 });
    });
    const layer = (name, kind = "path") => shape(kind, { class: name });
    this.layers = {
      policy: layer("policy"),
      shortest: layer("shortest"),
      arrows: layer("arrows"),
      goal: layer("goal", "g"),
      start: layer("start", "g"),
      cursor: shape("rect", { class: "place", width: 1, height: 1, rx: 0.12 }),
    };
    this.layers.goal.append(shape("circle", { r: 0.4 }), shape("circle", { r: 0.16, class: "heart" }));
    this.layers.start.append(shape("circle", { r: 0.36 }));
    this.drawing.setAttribute("viewBox", `0 0 ${size} ${size}`);
    this.drawing.replaceChildren(shape("g", { class: "cells" }, ...this.cells), ...Object.values(this.layers));
  }

  draw(state, { arrows, values, way }) {
    const { size, obstacle, start, goal, plan, cursor } = state;
    if (size !== this.size) this.build(size);
    const shades = values ? shading(plan.values, obstacle) : null;
    this.cells.forEach((rect, cell) => {
      rect.setAttribute("class", obstacle[cell] ? (onBorder(cell, size) ? "wall border" : "wall") : "free");
      rect.setAttribute("fill-opacity", shades && !obstacle[cell] ? shades[cell].toFixed(3) : 1);
      rect.classList.toggle("shaded", Boolean(shades) && !obstacle[cell]);
    });
    this.layers.policy.setAttribute("d", wayPath(state.way, size));
    this.layers.shortest.setAttribute("d", way && state.best ? wayPath(state.best, size) : "");
    this.layers.arrows.setAttribute("d", arrows ? arrowPaths(plan.moves, size) : "");
    for (const [name, cell] of [["start", start], ["goal", goal]]) {
      const [row, column] = [Math.floor(cell / size), cell % size];
      this.layers[name].setAttribute("transform", `translate(${column + 0.5},${row + 0.5})`);
    }
    this.layers.cursor.setAttribute("x", cursor % size);
    this.layers.cursor.setAttribute("y", Math.floor(cursor / size));
  }

  /** The cell under the pointer, the nearest one if it has left the map. */
  cellAt(event) {
    const box = this.drawing.getBoundingClientRect();
    const within = (share) => Math.min(Math.max(Math.floor(share * this.size), 0), this.size - 1);
    const row = within((event.clientY - box.top) / box.height);
    return row * this.size + within((event.clientX - box.left) / box.width);
  }
}

/** How dark each free cell is: by the rank of its value, as values far from the goal lie close together. */
function shading(values, obstacle) {
  const free = [...values.keys()].filter((cell) => !obstacle[cell]);
  free.sort((one, two) => values[one] - values[two]);
  const shades = new Float32Array(values.length);
  free.forEach((cell, rank) => {
    shades[cell] = 0.03 + 0.55 * (rank / Math.max(free.length - 1, 1)) ** 2;
  });
  return shades;
}

function wayPath(way, size) {
  return `M${way.map((cell) => `${(cell % size) + 0.5},${Math.floor(cell / size) + 0.5}`).join("L")}`;
}

function arrowPaths(moves, size) {
  let path = "";
  moves.forEach((move, cell) => {
    if (move < 0) return;
    const [down, right] = GRID_MOVES[move];
    const length = Math.hypot(down, right);
    const [x, y] = [right / length, down / length];
    const [middleX, middleY] = [(cell % size) + 0.5, Math.floor(cell / size) + 0.5];
    const at = (along, across) => {
      return `${(middleX + along * x - across * y).toFixed(3)},${(middleY + along * y + across * x).toFixed(3)}`;
    };
    path += `M${at(-0.24, 0)}L${at(0.24, 0)}M${at(0.08, -0.15)}L${at(0.24, 0)}L${at(0.08, 0.15)}`;
  });
  return path;
}
