// The Hanoi playground: two towers to arrange, and a trained policy that leads from the one to the other.
// In: the policy of the data, pointer and keys. Out: the towers, and a sentence about them.

const PACE = 560; // milliseconds from one move to the next

/** Three pegs and their discs; the pegs are buttons. */
class Tower {
  constructor(place, title, discs, changed) {
    this.place = place;
    this.title = title;
    this.changed = changed;
    this.locked = false;
    this.lifted = null;
    this.count = discs;
    this.pegs = Array.from({ length: PEGS }, (_, peg) => {
      return element("button", { type: "button", class: "peg", onclick: () => this.tap(peg) }, String(peg + 1));
    });
    this.discs = Array.from({ length: discs }, (_, disc) => {
      const made = element("span", { class: `disc disc-${disc}`, "aria-hidden": "true" }, String(disc + 1));
      made.style.width = `${(100 / PEGS) * (0.3 + (0.6 * (disc + 1)) / discs)}%`;
      made.style.height = `${60 / discs}%`;
      return made;
    });
    const stage = element("div", { class: "stage" }, ...this.pegs, ...this.discs);
    place.append(element("p", { class: "title", "aria-hidden": "true" }, title), stage);
    place.onkeydown = (event) => {
      const peg = ["1", "2", "3"].indexOf(event.key);
      if (peg < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.pegs[peg].focus();
      this.tap(peg);
    };
  }

  show(position, lifted = null) {
    this.position = position;
    this.lifted = lifted;
    for (let disc = 0; disc < this.count; disc++) {
      const peg = position[disc];
      const level = position.filter((other, larger) => other === peg && larger > disc).length;
      const style = this.discs[disc].style;
      style.left = `${(100 / PEGS) * (peg + 0.5)}%`;
      style.bottom = lifted === disc ? `${100 - 60 / this.count}%` : `${(60 / this.count) * level}%`;
    }
    this.pegs.forEach((button, peg) => {
      const own = [...position.keys()].filter((disc) => position[disc] === peg).map((disc) => disc + 1);
      const state = own.length ? `disc${own.length > 1 ? "s" : ""} ${own.join(", ")}` : "empty";
      const held = lifted !== null && position[lifted] === peg ? ", its top disc is lifted" : "";
      button.setAttribute("aria-label", `${this.title}, peg ${peg + 1}: ${state}${held}`);
    });
  }

  tap(peg) {
    if (this.locked) return;
    if (this.lifted === null) {
      const disc = topOf(this.position, peg);
      if (disc >= 0) this.show(this.position, disc);
      else speak(`Peg ${peg + 1} is empty`);
      return;
    }
    const from = this.position[this.lifted];
    const next = afterMove(this.position, [from, peg]);
    if (from !== peg && next === this.position) speak(`A larger disc cannot lie on a smaller one`);
    this.show(next);
    if (from !== peg) this.changed();
  }

  /** Carry the top disc of one peg over to another: up, across and down. */
  carry(move) {
    const disc = this.discs[topOf(this.position, move[0])];
    const before = disc?.getBoundingClientRect();
    const next = afterMove(this.position, move);
    const stays = next === this.position;
    this.show(next);
    if (!disc || stays || calm.matches) return;
    const after = disc.getBoundingClientRect();
    const top = disc.parentElement.getBoundingClientRect().top;
    const at = (x, y) => ({ transform: `translate(calc(-50% + ${x - after.left}px), ${y - after.top}px)` });
    const places = [at(before.left, before.top), at(before.left, top), at(after.left, top), at(after.left, after.top)];
    disc.animate(places, { duration: PACE * 0.8, easing: "ease-in-out" });
  }
}

class HanoiPlayground {
  constructor(policy) {
    this.network = new Perceptron(policy.network);
    this.horizon = policy.horizon;
    this.count = policy.n_discs;
    this.part = Object.fromEntries(
      ["now", "goal", "says", "policy", "fewest", "solve", "random", "classic", "moves", "origin"].map((name) => [
        name,
        document.getElementById(`hanoi-${name}`),
      ]),
    );
    this.now = new Tower(this.part.now, "Position", this.count, () => this.change());
    this.goal = new Tower(this.part.goal, "Goal", this.count, () => this.change());
    const all = (peg) => new Array(this.count).fill(peg);
    const any = () => Array.from({ length: this.count }, () => Math.floor(Math.random() * PEGS));
    this.part.random.onclick = () => this.begin(any(), any());
    this.part.classic.onclick = () => this.begin(all(0), all(2));
    this.part.solve.onclick = () => (this.playing ? this.stop() : this.solve());
    const of = policy.seeds > 1 ? `, the best of ${policy.seeds} seeds` : "";
    const share = `${(100 * policy.success).toFixed(1)} %`;
    this.part.origin.textContent = `Policy: ${policy.from}${of}. It solved ${share} of random tasks.`;
    this.begin(all(0), all(2));
  }

  begin(now, goal) {
    this.stop();
    this.now.show(now);
    this.goal.show(goal);
    this.change();
  }

  /** Another task: nothing is played yet. */
  change() {
    this.fewest = fewestMoves(this.now.position, this.goal.position);
    this.part.fewest.textContent = plural(this.fewest, "move");
    this.part.policy.textContent = "–";
    this.part.moves.replaceChildren();
    this.part.solve.disabled = this.fewest === 0;
    this.part.says.textContent =
      this.fewest === 0 ? "The goal is reached already; change one of the two." : "Press Solve to let the policy play.";
  }

  solve() {
    const task = this.fewest;
    let count = 0;
    this.lock(true);
    this.part.moves.replaceChildren();
    const step = () => {
      const position = this.now.position;
      if (samePosition(position, this.goal.position)) return this.end(count, task, true);
      if (count === this.horizon) return this.end(count, task, false);
      const move = HANOI_MOVES[hanoiMove(this.network, position, this.goal.position)];
      const disc = topOf(position, move[0]);
      count += 1;
      this.now.carry(move);
      const legal = this.now.position !== position;
      const illegal = `peg ${move[0] + 1} → ${move[1] + 1}, not allowed`;
      const words = legal ? `disc ${disc + 1} → peg ${move[1] + 1}` : illegal;
      this.part.moves.append(element("li", {}, words));
      this.part.policy.textContent = plural(count, "move");
      this.playing = setTimeout(step, PACE);
    };
    this.part.says.textContent = "The policy plays.";
    this.playing = setTimeout(step, 0);
  }

  end(count, fewest, solved) {
    this.stop();
    this.part.says.textContent = solved
      ? `Solved in ${plural(count, "move")}; the fewest possible are ${fewest}.`
      : `Not solved in ${count} moves; ${fewest} would do.`;
    this.part.fewest.textContent = plural(fewest, "move");
    this.part.solve.disabled = solved;
  }

  stop() {
    if (this.playing) this.part.says.textContent = "Stopped.";
    clearTimeout(this.playing);
    this.playing = null;
    this.lock(false);
    if (this.now.position) this.fewest = fewestMoves(this.now.position, this.goal.position);
  }

  lock(locked) {
    this.now.locked = this.goal.locked = locked;
    this.part.solve.textContent = locked ? "Stop" : "Solve";
    for (const place of [this.part.now, this.part.goal]) place.classList.toggle("locked", locked);
  }
}

if (report.hanoi) {
  const playground = new HanoiPlayground(report.hanoi.at(-1));
  window.pchid.hanoi = playground;
  /** The policy's moves for pairs of positions, as numbers of actions. */
  window.pchid.hanoiMoves = (pairs) => pairs.map(([pegs, goal]) => hanoiMove(playground.network, pegs, goal));
  window.pchid.fewestMoves = fewestMoves;
  window.pchid.movesTaken = (pegs, goal) => movesTaken(playground.network, pegs, goal, playground.horizon);
}
