// Elements, and answers: of the server, or of the report that this is.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element with these attributes, a class among them, and children or texts. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for what is drawn. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const embedded = document.getElementById("answers");

/** The answers of a report, by path; null where a server gives them. */
export const answers = embedded && JSON.parse(embedded.textContent);

/** What the server says it cannot answer. */
export class Refused extends Error {}

async function answered(path, options) {
  if (answers) return { json: () => answers[path], text: () => answers[path] };
  const response = await fetch(path, options).catch((error) => {
    throw new Refused(error.message);
  });
  if (response.ok) return response;
  const text = await response.text();
  let words = text;
  if ((response.headers.get("content-type") ?? "").includes("json")) words = JSON.parse(text).error;
  throw new Refused(words || `status ${response.status}`);
}

/** Return what is answered as JSON. */
export async function fetched(path, options = {}) {
  return (await answered(path, options)).json();
}

/** Return what is answered as text. */
export async function fetchedText(path) {
  return (await answered(path, {})).text();
}

/** Do what asks the server; where it cannot answer have a note say so. */
export async function tried(note, work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    note.textContent = error.message;
  }
}

/** Return how many calls have ended. */
export function ended({ done, failed, cancelled }) {
  return done + failed + cancelled;
}

/** Return a number as people read it. */
export function counted(number) {
  return number.toLocaleString("en");
}

/** Return a time in seconds in few characters. */
export function shownSeconds(value) {
  if (value === 0) return "0 s";
  if (value < 0.1) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const whole = Math.floor(value);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const shown = parts.map((part) => String(part).padStart(2, "0")).join(":");
  return shown.replace(/^00:/, "");
}

/** Return a list that says which colour means what. */
export function legend(entries) {
  const items = entries.map(([colour, words]) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = colour;
    return element("li", {}, swatch, words);
  });
  return element("ul", { class: "legend" }, ...items);
}
