// Learning curves to look at and to read values from.
// In: the charts of the data. Out: in each figure a drawing, choices of measure and axis, and a legend with values.

class Chart {
  constructor(figure, data) {
    this.figure = figure;
    this.data = data;
    this.measure = data.measure;
    this.axis = data.axis;
    this.hidden = new Set();
    this.place = null; // an index into `xs`, or the end of each curve
    const published = new Map(data.published.map((line) => [line.name, { label: line.name, published: true }]));
    this.lines = [...data.rows, ...published.values()].map((row, index) => ({ ...row, index }));
    this.build();
    new ResizeObserver(() => this.draw()).observe(this.drawing);
  }

  build() {
    const name = this.data.name;
    const present = Object.keys(report.measures).filter((one) => this.data.rows.some((row) => row.curves[one]));
    const choices = element(
      "div",
      { class: "choices" },
      this.choice("measure", "Measure", present, report.measures),
      this.choice("axis", "Against", Object.keys(report.axes), report.axes),
    );
    this.drawing = shape("svg", { role: "img", class: "drawing" });
    this.slider = element("input", {
      type: "range",
      min: 0,
      step: "any",
      id: `${name}-place`,
      oninput: () => this.read(this.nearest(Number(this.slider.value)), true),
      onkeydown: (event) => this.press(event),
      onblur: () => this.read(null),
    });
    const reading = element(
      "label",
      { class: "reading", for: `${name}-place` },
      element("span", { class: "unseen" }, "Read values at"),
      this.slider,
    );
    this.head = element("th", { scope: "col" });
    this.body = element("tbody", { onmouseleave: () => this.emphasise(null) });
    const heads = [this.head, element("th", { scope: "col", class: "number" }, "value")];
    heads.push(element("th", { scope: "col", class: "number" }, "95 % interval"));
    const legend = element(
      "table",
      { class: "legend" },
      element("caption", { class: "unseen" }, `Rows of ${name}, and their values where the chart is read`),
      element("thead", {}, element("tr", {}, ...heads)),
      this.body,
    );
    this.figure.replaceChildren(
      choices,
      element("div", { class: "plot" }, this.drawing, reading),
      element("div", { class: "wide" }, legend),
    );
    this.body.append(...this.lines.map((line) => this.entry(line)));
    this.drawing.onpointermove = (event) => this.point(event);
    this.drawing.onpointerdown = (event) => this.point(event);
    this.drawing.onpointerleave = (event) => {
      if (event.pointerType === "mouse") this.read(null); // a finger that is lifted leaves its reading
    };
    this.update();
  }

  choice(field, words, options, names) {
    const id = `${this.data.name}-${field}`;
    const select = element("select", { id, name: field });
    for (const one of options) {
      select.append(element("option", { value: one, selected: one === this[field] }, names[one]));
    }
    select.onchange = () => {
      this[field] = select.value;
      this.update();
      speak(this.sentence());
    };
    return element("label", { for: id }, element("span", {}, words), select);
  }

  entry(line) {
    const box = element("input", { type: "checkbox", checked: true });
    box.onchange = () => {
      if (box.checked) this.hidden.delete(line.label);
      else this.hidden.add(line.label);
      this.update();
    };
    const swatch = shape("svg", { class: `swatch ${this.kind(line)}`, viewBox: "0 0 28 12", "aria-hidden": "true" });
    swatch.append(shape("path", { d: "M1,6H27", class: "line", "stroke-dasharray": this.dashes(line) }));
    swatch.append(shape("path", { d: this.mark(line)(14, 6, 3.6), class: "mark" }));
    const seeds = line.published ? "" : ` (${plural(line.seeds, "seed")})`;
    const name = element("span", {}, line.label, element("small", {}, seeds));
    const row = element(
      "tr",
      { onmouseenter: () => this.emphasise(line) },
      element("th", { scope: "row" }, element("label", {}, box, swatch, name)),
      element("td", { class: "number value" }),
      element("td", { class: "number interval" }),
    );
    row.addEventListener("focusin", () => this.emphasise(line));
    row.addEventListener("focusout", () => this.emphasise(null));
    line.row = row;
    return row;
  }

  kind(line) {
    return line.published ? "published" : `colour-${line.index % COLOURS}`;
  }

  mark(line) {
    return MARKS[line.index % MARKS.length];
  }

  dashes(line) {
    return line.published ? ["5 4", "1.5 3", "9 3 2 3"][line.index % 3] : "none";
  }

  /** The points of a line under the present choices, or nothing. */
  curve(line) {
    if (line.published) {
      const found = this.data.published.find(
        (one) => one.name === line.label && one.measure === this.measure && one.axis === this.axis,
      );
      return found && { x: found.points.map((point) => point[0]), centre: found.points.map((point) => point[1]) };
    }
    const comparable = this.data.comparable[this.measure];
    if (comparable && !comparable.includes(line.label)) return undefined;
    return line.curves[this.measure]?.[this.axis];
  }

  shown() {
    return this.lines.filter((line) => this.curve(line) && !this.hidden.has(line.label));
  }

  /** After another choice: what can be read where, then everything again. */
  update() {
    this.xs = [...new Set(this.shown().flatMap((line) => this.curve(line).x))].sort((a, b) => a - b);
    this.place = null;
    this.slider.disabled = this.xs.length < 2;
    for (const line of this.lines) line.row.classList.toggle("absent", !this.curve(line));
    this.draw();
  }

  ratio() {
    return !["mean_return", "steps_to_goal"].includes(this.measure);
  }

  text(number) {
    return number.toFixed(this.ratio() ? 3 : 1);
  }

  draw() {
    const width = this.drawing.clientWidth || 640;
    const height = Math.round(Math.min(Math.max(width * 0.5, 250), 380));
    const box = { left: 46, right: width - 10, top: 30, bottom: height - 46 };
    const curves = this.shown().map((line) => this.curve(line));
    const heights = curves.flatMap((curve) => [...curve.centre, ...(curve.low ?? []), ...(curve.high ?? [])]);
    const span = this.ratio() ? [0, 1] : [Math.min(...heights, 0), Math.max(...heights, 0)];
    const yTicks = ticks(...span, 5);
    const room = (span[1] - span[0]) * 0.03 || 1;
    const end = Math.max(...curves.map((curve) => curve.x.at(-1)), 1);
    const x = scale(0, end, box.left, box.right);
    const y = scale(span[0] - room, span[1] + room, box.bottom, box.top);
    this.slider.max = end;
    this.box = box;
    this.scales = { x, y };
    const words = { xWords: report.axes[this.axis], yWords: report.measures[this.measure] };
    const axes = { x, y, box, yTicks, xTicks: ticks(0, end, width < 480 ? 4 : 6), ...words };
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.cursor = shape("g", { class: "cursor" });
    this.drawing.replaceChildren(
      frame({ ...axes, yText: (tick) => (this.ratio() ? tick.toFixed(1) : short(tick)) }),
      ...this.shown().map((line) => this.line(line, x, y)),
      this.cursor,
    );
    this.drawing.setAttribute("aria-label", this.sentence());
    this.read(this.place);
  }

  line(line, x, y) {
    const curve = this.curve(line);
    const places = (numbers) => curve.x.map((at, i) => `${x(at).toFixed(1)},${y(numbers[i]).toFixed(1)}`);
    const group = shape("g", { class: `curve ${this.kind(line)}` });
    if (curve.low) {
      const around = [...places(curve.high), ...places(curve.low).reverse()];
      group.append(shape("path", { class: "band", d: `M${around.join("L")}z` }));
    }
    const path = { class: "line", d: `M${places(curve.centre).join("L")}`, "stroke-dasharray": this.dashes(line) };
    group.append(shape("path", path));
    const every = line.published ? 1 : Math.max(1, Math.ceil(curve.x.length / 8));
    const marked = curve.x.map((_, i) => i).filter((i) => (curve.x.length - 1 - i) % every === 0);
    const marks = marked.map((i) => this.mark(line)(x(curve.x[i]), y(curve.centre[i]), 3.2)).join("");
    group.append(shape("path", { class: "mark", d: marks }));
    line.group = group;
    return group;
  }

  emphasise(line) {
    for (const other of this.lines) other.group?.classList.toggle("faded", line !== null && other !== line);
  }

  point(event) {
    if (!this.xs.length) return;
    const left = this.drawing.getBoundingClientRect().left;
    const share = (event.clientX - left - this.box.left) / (this.box.right - this.box.left);
    this.read(this.nearest(share * this.slider.max));
  }

  /** The evaluation, of any row, that is nearest to a place on the axis. */
  nearest(at) {
    const away = this.xs.map((x) => Math.abs(x - at));
    return away.indexOf(Math.min(...away));
  }

  /** Keys go from one evaluation to the next. */
  press(event) {
    const last = this.xs.length - 1;
    const place = this.place ?? last;
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageDown: -5, PageUp: 5, Home: -last, End: last };
    Object.assign(steps, { ArrowDown: -1, ArrowUp: 1 });
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.read(Math.min(Math.max(place + steps[event.key], 0), last), true);
  }

  /** Show the values at a place, or those at the end; `aloud` for who cannot see them change. */
  read(place, aloud = false) {
    this.place = place;
    const at = place === null ? null : this.xs[place];
    const words = at === null ? "at the end" : `at ${short(at)} ${report.axes[this.axis]}`;
    this.head.textContent = words[0].toUpperCase() + words.slice(1);
    this.slider.value = at ?? this.slider.max;
    this.slider.setAttribute("aria-valuetext", words);
    this.cursor.replaceChildren();
    if (at !== null) {
      const across = this.scales.x(at);
      this.cursor.append(shape("line", { x1: across, x2: across, y1: this.box.top, y2: this.box.bottom }));
    }
    for (const line of this.lines) {
      const found = this.value(line, at);
      const [value, interval] = line.row.querySelectorAll("td");
      value.textContent = found ? this.text(found.centre) : this.curve(line) ? "ended" : "–";
      interval.textContent = found?.low === undefined ? "" : `[${this.text(found.low)}, ${this.text(found.high)}]`;
      if (found && at !== null && !this.hidden.has(line.label)) {
        const mark = { class: this.kind(line), cx: this.scales.x(at), cy: this.scales.y(found.centre), r: 4.5 };
        this.cursor.append(shape("circle", mark));
      }
    }
    if (aloud) speak(this.sentence());
  }

  /** A line's values at a place: those of its evaluations, and between two of them on the straight line. */
  value(line, at) {
    const curve = this.curve(line);
    if (!curve) return undefined;
    const last = curve.x.length - 1;
    const place = at ?? curve.x[last];
    if (place > curve.x[last] || place < curve.x[0]) return undefined;
    const after = curve.x.findIndex((one) => one >= place);
    const before = Math.max(after - 1, 0);
    const share = after === before ? 0 : (place - curve.x[before]) / (curve.x[after] - curve.x[before]);
    const between = (numbers) => numbers && numbers[before] + share * (numbers[after] - numbers[before]);
    return { centre: between(curve.centre), low: between(curve.low), high: between(curve.high) };
  }

  sentence() {
    const at = this.place === null ? null : this.xs[this.place];
    const where = at === null ? "at the end" : `at ${short(at)} ${report.axes[this.axis]}`;
    const values = this.shown().map((line) => {
      const found = this.value(line, at);
      return `${line.label} ${found ? this.text(found.centre) : "ended"}`;
    });
    const [measure, axis] = [report.measures[this.measure], report.axes[this.axis]];
    return `${measure} against ${axis}, ${where}: ${values.join("; ") || "no row is shown"}.`;
  }
}

for (const figure of document.querySelectorAll("figure.chart")) {
  new Chart(figure, report.charts.find((chart) => chart.name === figure.dataset.chart));
}
