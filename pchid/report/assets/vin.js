// A planning network (Sec. 4.1), as pchid/networks/loops.py computes it.
// In: exported kernels, a map and a goal. Out: the scores of the moves in every cell.
//
// Numbers are single precision and sums are in the same order as there, where a product and a sum are one rounding, so
// that the scores are equal bit for bit, and with them the moves wherever two are nearly as good. A plane lies flat,
// with one zero after each row and a row of zeros above and below: the nine cells around a cell are then always at the
// same nine distances from it.

const single = Math.fround;

/** a * b + c, rounded once: the product of two single-precision numbers is exact in double precision. */
function fused(a, b, c) {
  return single(a * b + c);
}

class PlanningNetwork {
  constructor(exported) {
    this.iterations = exported.iterations;
    this.channels = exported.of_value.shape[0];
    this.outputs = exported.readout.shape[0];
    for (const name of ["folded", "of_reward", "of_value", "readout"]) this[name] = unpacked(exported[name]);
  }

  /** (size * size, outputs) scores, row by row, for a flat map with 1 where it is blocked. */
  scores(obstacle, goal, size) {
    const stride = size + 1;
    const length = (size + 2) * stride + 1;
    const around = [-stride - 1, -stride, -stride + 1, -1, 0, 1, stride - 1, stride, stride + 1];
    const cells = Array.from({ length: size * size }, (_, i) => (Math.floor(i / size) + 1) * stride + (i % size) + 1);
    const [obstacles, goals, reward] = [0, 1, 2].map(() => new Float32Array(length));
    cells.forEach((cell, i) => {
      obstacles[cell] = obstacle[i];
    });
    goals[cells[goal]] = 1;
    for (const cell of cells) {
      const fromObstacles = weighed(this.folded[18], this.folded, 0, obstacles, cell, around);
      reward[cell] = weighed(fromObstacles, this.folded, 9, goals, cell, around);
    }
    const constant = Array.from({ length: this.channels }, (_, channel) => {
      const plane = new Float32Array(length);
      for (const cell of cells) plane[cell] = weighed(0, this.of_reward, 9 * channel, reward, cell, around);
      return plane;
    });
    const value = this.propagate(constant, cells, around, length);
    const found = new Float32Array(cells.length * this.outputs);
    cells.forEach((cell, i) => {
      const q = constant.map((plane, channel) => weighed(plane[cell], this.of_value, 9 * channel, value, cell, around));
      found.set(this.read(q), i * this.outputs);
    });
    return found;
  }

  /** The values before the last iteration: each is the largest q of its cell. */
  propagate(constant, cells, around, length) {
    let [before, value] = [new Float32Array(length), new Float32Array(length)];
    for (let step = 0; step < this.iterations; step++) {
      [before, value] = [value, before];
      for (const cell of cells) {
        let best = -Infinity;
        for (let channel = 0; channel < this.channels; channel++) {
          let q = constant[channel][cell];
          // In the first iteration there are no values yet that could spread.
          for (let k = 0; step > 0 && k < 9; k++) {
            q = fused(this.of_value[9 * channel + k], before[cell + around[k]], q);
          }
          if (q > best) best = q;
        }
        value[cell] = best;
      }
    }
    return value;
  }

  /** The scores of the moves from the channels of a cell. */
  read(q) {
    return Array.from({ length: this.outputs }, (_, output) => {
      let score = 0;
      for (let channel = 0; channel < this.channels; channel++) {
        score = fused(this.readout[output * this.channels + channel], q[channel], score);
      }
      return score;
    });
  }
}

/** `total` plus the nine cells around a cell, times a kernel, in the order in which the compiled loop adds them up. */
function weighed(total, kernels, first, plane, cell, around) {
  const term = (k) => [kernels[first + k], plane[cell + around[k]]];
  for (const k of [0, 3]) {
    const middle = single(kernels[first + k + 1] * plane[cell + around[k + 1]]);
    total = single(total + fused(...term(k + 2), fused(...term(k), middle)));
  }
  for (const k of [6, 7, 8]) total = fused(...term(k), total);
  return total;
}
