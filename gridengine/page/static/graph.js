// The calls that need each other's results.

import { counted, element, fetched, legend, tried } from "./dom.js";

const STATES = ["done", "failed", "running", "waiting", "missing"];
const WORDS = {
  done: "done", failed: "failed", running: "at a worker", waiting: "waits for a worker",
  missing: "waits for results",
};
const [TALL, EDGE, MOST_EDGES] = [520, 14, 20_000];
const FULL_EDGES = 500; // More are drawn fainter.
const [SMALLEST, LARGEST] = [5, 26];

/** Nodes by state, in layers from left to right; and the functions' counts. */
export class GraphView {
  constructor() {
    this.canvas = element("canvas", {
      tabindex: "0", role: "img",
      onmousemove: (event) => this.point(event), onkeydown: (event) => this.pressed(event),
    });
    this.told = element("p", { "aria-live": "polite" });
    this.note = element("p", { class: "note" });
    this.key = element("div");
    this.body = element("tbody");
    const titles = ["function", ...STATES.map((state) => WORDS[state]), "needs results of"];
    this.table = element(
      "table", {}, element("caption", {}, "Functions of the graph"),
      element("thead", {}, element("tr", {}, ...titles.map((title, place) => element(
        "th", { scope: "col", class: 0 < place && place < 6 ? "number" : "" },
        element("span", {}, title),
      )))),
      this.body,
    );
    this.table.style.minWidth = "90ch";
    this.elements = [
      this.key, this.canvas, this.told, this.note,
      element("h2", {}, "Functions"),
      element("div", {
        class: "scroller", tabindex: "0", role: "region", "aria-label": "Functions of the graph",
      }, this.table),
    ];
    this.nodes = [];
    this.places = [];
    this.chosen = null;
    this.due = 0;
  }

  async refresh() {
    if (performance.now() < this.due) return;
    this.due = performance.now() + 2000;
    await tried(this.note, async () => this.take(await fetched("/graph")));
  }

  take({ run, nodes, functions, note }) {
    if (run !== this.run || nodes.length < this.nodes.length) this.chosen = null;
    [this.run, this.nodes] = [run, nodes];
    const none = functions.length === 0;
    this.canvas.hidden = nodes.length === 0;
    this.note.textContent = none ? "No call needs the result of another." : note;
    const counts = Object.fromEntries(STATES.map((state) => (
      [state, nodes.filter((one) => one.state === state).length]
    )));
    this.key.replaceChildren(nodes.length ? legend(STATES.map((state) => (
      [`var(--${state})`, `${counted(counts[state])} ${WORDS[state]}`]
    ))) : "");
    const words = STATES.map((state) => `${counts[state]} ${WORDS[state]}`).join(", ");
    this.canvas.setAttribute("aria-label", `Graph of ${nodes.length} calls: ${words}`);
    this.body.replaceChildren(...functions.map(({ name, states, after }) => element(
      "tr", {}, element("th", { scope: "row", title: name }, name),
      ...STATES.map((state) => element("td", { class: "number" }, counted(states[state] ?? 0))),
      element("td", {}, Object.keys(after).join(", ") || "–"),
    )));
    if (nodes.length) this.draw();
  }

  /** Place each layer's nodes in columns of their own, side by side. */
  place(wide) {
    const layers = [];
    this.nodes.forEach(({ layer }, place) => (layers[layer] ??= []).push(place));
    let size = LARGEST;
    const columns = () => layers.reduce((sum, { length }) => (
      sum + Math.ceil((length * size) / TALL)
    ), 0);
    while (size > SMALLEST && columns() * size + layers.length * size > wide) size -= 1;
    const gap = Math.max(size / 2, (wide - columns() * size) / layers.length);
    const rows = Math.floor(TALL / size);
    let left = gap / 2;
    for (const layer of layers) {
      const across = Math.ceil(layer.length / rows);
      const down = Math.ceil(layer.length / across);
      layer.forEach((node, place) => {
        const row = place % down;
        const top = (TALL - down * size) / 2;
        this.places[node] = [
          left + (Math.floor(place / down) + 0.5) * size, top + (row + 0.5) * size,
        ];
      });
      left += across * size + gap;
    }
    this.size = size;
  }

  draw() {
    const wide = this.canvas.clientWidth || 1000;
    const scale = window.devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = [wide * scale, TALL * scale];
    this.canvas.style.height = `${TALL}px`;
    this.place(wide);
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    this.drawEdges(pen, colour);
    const side = Math.max(2, this.size - 3);
    for (const state of STATES) {
      pen.fillStyle = colour(state);
      this.nodes.forEach((one, place) => {
        if (one.state !== state) return;
        const [x, y] = this.places[place];
        pen.fillRect(x - side / 2, y - side / 2, side, side);
      });
    }
    if (this.chosen !== null) {
      const [x, y] = this.places[this.chosen];
      pen.strokeStyle = colour("text");
      pen.lineWidth = 2;
      pen.strokeRect(x - this.size / 2, y - this.size / 2, this.size, this.size);
    }
  }

  drawEdges(pen, colour) {
    let count = 0;
    const near = [];
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    pen.beginPath();
    this.nodes.forEach(({ after }, place) => {
      for (const other of after) {
        count += 1;
        if (count > MOST_EDGES) return;
        if (place === this.chosen || other === this.chosen) near.push([other, place]);
        this.curve(pen, other, place);
      }
    });
    pen.globalAlpha = Math.max(0.15, Math.min(1, FULL_EDGES / count));
    pen.stroke();
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("accent");
    pen.lineWidth = 2;
    pen.beginPath();
    for (const [other, place] of near) this.curve(pen, other, place);
    pen.stroke();
  }

  curve(pen, from, to) {
    const [x, y] = this.places[from];
    const [right, below] = this.places[to];
    const bend = Math.max(EDGE, (right - x) / 2);
    pen.moveTo(x, y);
    pen.bezierCurveTo(x + bend, y, right - bend, below, right, below);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const found = this.places.findIndex(([left, top]) => (
      Math.abs(left - x) <= this.size / 2 && Math.abs(top - y) <= this.size / 2
    ));
    this.choose(found >= 0 && found < this.nodes.length ? found : null);
  }

  pressed(event) {
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    const ends = { Home: 0, End: this.nodes.length - 1 };
    if (!(event.key in steps || event.key in ends) || !this.nodes.length) return;
    event.preventDefault();
    const next = (this.chosen ?? -1) + (steps[event.key] ?? 0);
    const wanted = event.key in ends ? ends[event.key] : next;
    this.choose(Math.max(0, Math.min(wanted, this.nodes.length - 1)));
  }

  choose(place) {
    if (place === this.chosen) return;
    this.chosen = place;
    const one = this.nodes[place];
    this.told.textContent = one ? (
      `${one.call}: ${WORDS[one.state]}, layer ${one.layer + 1}, needs ${one.after.length} others`
    ) : "";
    this.draw();
  }
}
