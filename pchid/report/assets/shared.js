// What all parts of the page share.
// In: the data that `pchid report` has put into the page. Out: `report`, and ways to make elements and to speak.

const report = JSON.parse(document.getElementById("data").textContent);

// What tests, and the curious, may call.
window.pchid = {};

const SVG = "http://www.w3.org/2000/svg";
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

/** An HTML element with attributes, properties such as `onclick`, and children. */
function element(name, attributes = {}, ...children) {
  return dressed(document.createElement(name), attributes, children);
}

/** The same for a part of a drawing. */
function shape(name, attributes = {}, ...children) {
  return dressed(document.createElementNS(SVG, name), attributes, children);
}

function dressed(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made[name] = value;
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Let a screen reader say a sentence, once the reader has stopped changing things. */
function speak(sentence) {
  clearTimeout(speak.later);
  speak.later = setTimeout(() => {
    document.getElementById("spoken").textContent = sentence;
  }, 300);
}

/** The numbers of an exported array. */
function unpacked(array) {
  const bytes = Uint8Array.from(atob(array.float32), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

/** The first index of the largest number, as NumPy and torch have it. */
function argmax(numbers) {
  let best = 0;
  for (let i = 1; i < numbers.length; i++) if (numbers[i] > numbers[best]) best = i;
  return best;
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
