// The views that are tables and words.

import {
  answers, counted, drawn, element, ended, fetched, fetchedText, shownSeconds, tried,
} from "./dom.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";

const MOST_SAMPLES = 300;
const LATELY = 10; // Samples, of a second each, that make the present rate.
const MOST_ROWS = 12; // Of the timeline, beside the rest.
const OPEN_CALLS_TICKS = 5; // To count a million calls down to those seen takes a dispatcher time.
const [HIGH, ROOM] = [96, 18];
const samples = []; // They are kept whatever view is shown.

/** A line over time: what is drawn are points of seconds and values. */
class Curve {
  constructor() {
    this.chart = drawn("svg", { height: HIGH, role: "img" });
  }

  draw(words, points, begin, until) {
    const most = Math.max(1e-9, ...points.map(([, value]) => value));
    const wide = this.chart.clientWidth || 600;
    const low = HIGH - ROOM;
    const placed = points.map(([at, value]) => (
      `${((wide * (at - begin)) / (until - begin || 1)).toFixed(1)},`
      + `${(low - (low - ROOM) * (value / most)).toFixed(1)}`
    ));
    const start = begin ? shownSeconds(begin) : "the beginning";
    this.chart.setAttribute("aria-label", words);
    this.chart.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    this.chart.replaceChildren(
      drawn("line", { x1: 0, x2: wide, y1: low, y2: low, class: "grid" }),
      drawn("polyline", { points: placed.join(" "), class: "curve" }),
      drawn("text", { x: 0, y: 12 }, words),
      drawn("text", { x: 0, y: HIGH - 3 }, start),
      drawn("text", { x: wide, y: HIGH - 3, "text-anchor": "end" }, shownSeconds(until)),
    );
  }
}

/** How far it is, who runs what, how fast it goes, why calls wait, and the functions. */
export class OverviewView {
  constructor() {
    this.why = element("ul", { class: "why" });
    this.tiles = element("dl", { class: "tiles" });
    this.timeline = new Timeline(MOST_ROWS, ({ seconds, rates }) => this.drawRate(seconds, rates));
    [this.rate, this.memory] = [new Curve(), new Curve()];
    this.remembered = element(
      "section", { hidden: "" }, element("h2", {}, "Memory of workers"), this.memory.chart,
    );
    this.functions = new Table("functions", "Functions", { most: 10, quiet: true });
    this.elements = [
      this.tiles,
      element(
        "div", { class: "glance" },
        element("section", {}, element("h2", {}, "Timeline"), ...this.timeline.elements),
        element(
          "div", { class: "curves" }, this.remembered,
          element("section", {}, element("h2", {}, "Calls ended each second"), this.rate.chart),
        ),
        element("section", {}, element("h2", {}, "Why calls wait, and what is odd"), this.why),
      ),
      element("h2", {}, "Functions"), this.functions.element,
    ];
  }

  refresh(told) {
    this.functions.refresh();
    this.timeline.refresh();
    this.why.replaceChildren(...told.explanations.map(({ text, next_step: step }) => {
      const item = element("li", {}, `${text}.`);
      if (step) item.append(element("span", { class: "next" }, `Next: ${step}.`));
      return item;
    }));
    const workers = Object.entries(told.workers).filter(([, count]) => count)
      .map(([state, count]) => [`workers ${state}`, counted(count)]);
    const cpu = samples.at(-1)?.part ?? null;
    const used = cpu === null ? [] : [["dispatcher's CPU", `${Math.round(100 * cpu)} %`]];
    const facts = [...Object.entries(told.facts), ...used, ...workers];
    this.tiles.replaceChildren(...facts.map(([name, value]) => (
      element("div", {}, element("dt", {}, name), element("dd", {}, value))
    )));
    this.drawMemory();
  }

  drawMemory() {
    const points = samples.filter(({ memory }) => memory).map(({ at, memory }) => [at, memory]);
    this.remembered.hidden = points.length < 2;
    if (this.remembered.hidden) return;
    const now = samples.at(-1).over ? "" : `${megabytes(points.at(-1)[1])} now, `;
    const most = Math.max(...points.map(([, value]) => value));
    this.memory.draw(`${now}${megabytes(most)} at most`, points, points[0][0], points.at(-1)[0]);
  }

  drawRate(seconds, rates) {
    const each = seconds / rates.length;
    const points = rates.flatMap((rate, part) => [[part * each, rate], [(part + 1) * each, rate]]);
    const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
    const [before, last] = [samples.at(-1 - LATELY) ?? samples[0], samples.at(-1)];
    const lately = (last.ended - before.ended) / (last.at - before.at || 1);
    const now = answers || last.over ? "" : `${lately.toFixed(1)} now, `;
    this.rate.draw(`${now}${mean.toFixed(1)} on average`, points, 0, seconds);
  }
}

function megabytes(bytes) {
  return `${counted(Math.round(bytes / 2 ** 20))} MB`;
}

/**
 * Keep how far it is, and which part of a processor the dispatcher has used since before: at first
 * since the run's beginning. Of many samples every second one is dropped.
 */
export function keep(told) {
  if (samples.at(-1)?.run !== told.run) {
    samples.splice(0, samples.length, {
      run: told.run, at: 0, ended: 0, cpu: 0, memory: 0, part: null,
    });
  }
  const before = samples.at(-1);
  const one = {
    run: told.run, at: told.elapsed_seconds, ended: ended(told.calls), cpu: told.cpu_seconds,
    memory: told.memory, over: Boolean(told.ended),
  };
  if (one.at <= before.at) return;
  one.part = Math.max(0, one.cpu - before.cpu) / (one.at - before.at);
  samples.push(one);
  if (samples.length <= MOST_SAMPLES) return;
  for (let place = samples.length - 2; place > 0; place -= 2) samples.splice(place, 1);
}

/** The workers. */
export class WorkersView {
  constructor(act, told) {
    const ask = (host) => act(
      `Have the workers on ${host} leave when what they run has ended?`,
      "/drain", { hosts: [host] },
    );
    const action = told?.actions ? { title: "drain", act: ask } : null;
    this.table = new Table("workers", "Workers", { action });
    this.elements = [this.table.element];
  }

  refresh() {
    this.table.refresh();
  }
}

/** Calls that run, and all that have not ended. */
export class CallsView {
  constructor(act, told) {
    const ask = (id, name) => act(
      `End ${name}? This cannot be undone.`, "/cancel", { calls: [id] },
    );
    const action = told?.actions ? { title: "end", act: ask } : null;
    this.table = new Table("calls", "Calls", { action });
    const choice = element(
      "select", { onchange: () => this.table.become(choice.value) },
      element("option", { value: "calls" }, "that run"),
      element("option", { value: "open" }, "that have not ended"),
    );
    if (!answers) {
      this.table.element.querySelector(".tools").prepend(element("label", {}, "Calls ", choice));
    }
    this.elements = [this.table.element];
    this.ticks = 0;
  }

  refresh() {
    this.ticks += 1;
    if (this.table.view === "open" && this.ticks % OPEN_CALLS_TICKS) return;
    this.table.refresh();
  }
}

/** Calls that have failed: by what, and each. */
export class FailuresView {
  constructor() {
    this.causes = new Table("causes", "Causes of failures", { most: 8, filter: "Filter causes" });
    this.table = new Table("failures", "Calls that have failed", { filter: "Filter calls" });
    this.elements = [
      this.causes.element, element("h2", {}, "Each of them"), this.table.element,
    ];
  }

  refresh() {
    this.causes.refresh();
    this.table.refresh();
  }
}

/** The settings, versions and resources. */
export class SettingsView {
  constructor() {
    this.table = new Table("settings", "Settings and versions", { most: 60 });
    this.elements = [this.table.element];
  }

  refresh() {
    if (!this.table.total) this.table.refresh(); // They do not change.
  }
}

/** What the dispatcher has told, and what workers and their calls have written. */
export class LogsView {
  constructor() {
    this.lines = new Table("log", "What the dispatcher has told", { most: 10 });
    this.names = [];
    this.choice = element("select", { onchange: () => tried(this.note, () => this.read()) });
    this.text = element("pre", { tabindex: "0", "aria-label": "The end of the log" });
    this.note = element("p", { class: "note" });
    this.elements = [
      this.lines.element, element("h2", {}, answers ? "Output" : "Workers' logs"),
      element("label", {}, "Log of ", this.choice), this.note, this.text,
    ];
  }

  async refresh() {
    this.lines.refresh();
    await tried(this.note, () => this.list());
  }

  async list() {
    const names = await fetched("/logs");
    if (JSON.stringify(names) !== JSON.stringify(this.names)) {
      const chosen = this.choice.value;
      this.names = names;
      this.choice.replaceChildren(...names.map((name) => element("option", {}, name)));
      if (names.includes(chosen)) this.choice.value = chosen;
    }
    const none = names.length === 0;
    this.choice.parentElement.hidden = none;
    this.text.hidden = none;
    const why = answers ? "The dispatcher has kept no output of calls."
      : "Workers of this machine have no logs: what calls print goes to the script's own output.";
    this.note.textContent = none ? why : "";
    if (!none) await this.read();
  }

  async read() {
    const text = await fetchedText(`/logs/${encodeURIComponent(this.choice.value)}`);
    const atEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 20;
    if (text === this.text.textContent) return;
    this.text.textContent = text;
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }
}
