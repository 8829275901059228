// Who ran what when.

import { counted, drawn, element, fetched, legend, shownSeconds, tried } from "./dom.js";
import { Table } from "./table.js";

const [ROW, LABEL] = [16, 150];
const NARROW = 600;
const AGAIN = 2000; // Milliseconds between two looks.
const COLOURS = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa3377", "#999999"];

/** The timeline, and how long calls took. */
export class TimelineView {
  constructor() {
    this.timeline = new Timeline();
    this.durations = new Table("durations", "How long calls took, and their memory", { most: 10 });
    this.elements = [
      ...this.timeline.elements,
      element("h2", {}, "Durations and memory"), this.durations.element,
    ];
  }

  refresh() {
    this.durations.refresh();
    this.timeline.refresh();
  }
}

/** Calls as bars, in a row for each call that a worker ran at a time; `most` rows. */
export class Timeline {
  constructor(most = Infinity, then = () => {}) {
    this.most = most;
    this.then = then; // It is called with each answer.
    this.chart = drawn("svg", { role: "img", "aria-label": "Timeline of workers" });
    this.key = element("div");
    this.note = element("p", { class: "note" });
    this.elements = [this.key, this.chart, this.note];
    this.due = 0;
  }

  async refresh() {
    if (performance.now() < this.due) return;
    this.due = performance.now() + AGAIN;
    await tried(this.note, async () => {
      const answer = await fetched("/timeline");
      this.draw(answer);
      this.then(answer);
    });
  }

  draw({ seconds, rows: all, bars: every, left_out: leftOut }) {
    const rows = all.slice(0, this.most);
    const bars = every.filter(({ row }) => row < rows.length);
    const whole = this.chart.clientWidth || 1000;
    const label = whole < NARROW ? 0 : LABEL;
    const wide = whole - label;
    const high = ROW * rows.length;
    const names = [...new Set(bars.map((one) => one.function))].sort();
    const colour = (name) => COLOURS[names.indexOf(name) % COLOURS.length];
    this.chart.setAttribute("viewBox", `0 0 ${whole} ${high + 20}`);
    this.chart.setAttribute("height", high + 20);
    const x = (at) => label + (wide * at) / seconds;
    const marks = [0, 0.25, 0.5, 0.75, 1].flatMap((part) => {
      const at = x(part * seconds);
      const anchor = part === 1 ? "end" : part === 0 ? "start" : "middle";
      return [
        drawn("line", { x1: at, x2: at, y1: 0, y2: high, class: "grid" }),
        drawn("text", { x: at, y: high + 15, "text-anchor": anchor }, shownSeconds(part * seconds)),
      ];
    });
    const labels = label ? rows.map((name, row) => (
      drawn("text", { x: 0, y: ROW * row + 12 }, name.slice(0, 22))
    )) : [];
    const failedLast = bars.toSorted((one, other) => (
      (one.state === "failed") - (other.state === "failed")
    ));
    const drawnBars = failedLast.map((one) => drawn(
      "rect",
      {
        x: x(one.start), y: ROW * one.row + 2, height: ROW - 4,
        width: Math.max((wide * one.seconds) / seconds, 1),
        fill: one.state === "failed" ? "var(--failed)" : colour(one.function),
        "fill-opacity": one.state === "running" ? 0.4 : 0.9,
      },
      drawn("title", {}, `${one.function}: ${one.state}, ${shownSeconds(one.seconds)}`),
    ));
    const deaths = bars.filter((one) => one.died).map((one) => drawn(
      "rect",
      { x: x(one.start + one.seconds) - 1.5, y: ROW * one.row, height: ROW, width: 3, class: "died" },
      drawn("title", {}, `${one.function}: ${one.died}; another process took its place`),
    ));
    this.chart.replaceChildren(...marks, ...labels, ...drawnBars, ...deaths);
    const told = deaths.length ? [["var(--text)", "a process ended, another took its place"]] : [];
    this.key.replaceChildren(legend([
      ...names.map((name) => [colour(name), name]), ["var(--failed)", "failed"], ...told,
    ]));
    const running = bars.filter((one) => one.state === "running").length;
    const beyond = leftOut + every.length - bars.length;
    const more = beyond ? `; ${counted(beyond)} more have no row here` : "";
    const run = running ? `, and ${counted(running)} that run, paler` : "";
    this.note.textContent = (
      `An even sample of ${counted(bars.length - running)} calls that took over a millisecond`
      + `${run}${more}.`
    );
  }
}
