// The scales and frames of drawings.
// In: ranges of numbers. Out: ticks at round numbers, positions, and the lines and words of an axis.

/** About `wanted` round numbers between two others. */
function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

/** 12,500 as 12.5k; what is small stays as it is. */
function short(number) {
  const size = Math.abs(number);
  if (size >= 1e6) return `${Number((number / 1e6).toPrecision(4))}M`;
  if (size >= 1e4) return `${Number((number / 1e3).toPrecision(4))}k`;
  return Number(number.toPrecision(6)).toLocaleString("en");
}

/** From numbers to places. */
function scale(from, to, start, end) {
  const factor = (end - start) / (to - from || 1);
  return (number) => start + (number - from) * factor;
}

/** The horizontal lines of a chart, its ticks and the words for both axes. */
function frame({ x, y, xTicks, yTicks, xWords, yWords, box, yText }) {
  const group = shape("g", { class: "frame" });
  for (const tick of yTicks) {
    group.append(
      shape("line", { x1: box.left, x2: box.right, y1: y(tick), y2: y(tick), class: tick === 0 ? "zero" : "" }),
      shape("text", { x: box.left - 8, y: y(tick), "text-anchor": "end", dy: "0.32em" }, yText(tick)),
    );
  }
  for (const tick of xTicks) {
    group.append(
      shape("text", { x: x(tick), y: box.bottom + 18, "text-anchor": "middle" }, short(tick)),
      shape("line", { x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 4, class: "zero" }),
    );
  }
  group.append(
    shape("text", { x: box.right, y: box.bottom + 37, "text-anchor": "end", class: "words" }, xWords),
    shape("text", { x: box.left, y: box.top - 14, class: "words" }, yWords),
  );
  return group;
}

// Shapes besides colours, so that rows can be told apart without them.
const MARKS = [
  (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (x, y, r) => `M${x},${y - 1.3 * r}l${1.25 * r},${2.2 * r}h${-2.5 * r}z`,
  (x, y, r) => `M${x},${y - 1.4 * r}l${1.4 * r},${1.4 * r}l${-1.4 * r},${1.4 * r}l${-1.4 * r},${-1.4 * r}z`,
  (x, y, r) => `M${x},${y + 1.3 * r}l${1.25 * r},${-2.2 * r}h${-2.5 * r}z`,
];
const COLOURS = 10;
