// The head of the page, its views, and what comes from the server each second.

import { answers, counted, element, ended, fetched, tried } from "./dom.js";
import {
  CallsView, FailuresView, LogsView, OverviewView, SettingsView, WorkersView, keep,
} from "./views.js";
import { GraphView } from "./graph.js";
import { TimelineView } from "./timeline.js";

const VIEWS = {
  overview: OverviewView, workers: WorkersView, calls: CallsView, graph: GraphView,
  timeline: TimelineView, failures: FailuresView, logs: LogsView, settings: SettingsView,
};
/** The answers without which a view of a report has nothing to show. */
const NEEDS = { workers: "/rows/workers", calls: "/rows/calls", graph: "/graph" };
const AGAIN_SECONDS = 3;
const STATES = ["done", "failed", "cancelled", "running", "waiting"];
const SHOWN = STATES.filter((state) => state !== "cancelled");

const byId = (id) => document.getElementById(id);
const tabs = () => [...document.querySelectorAll("#tabs li:not([hidden]) a")];
let shown = null;
let last = null;
let hasGraph = false;

/** Do what is asked for once the user has said yes, and say what came of it. */
async function act(question, path, body) {
  byId("question").textContent = question;
  const dialog = byId("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => { dialog.addEventListener("close", resolve, { once: true }); });
  if (dialog.returnValue !== "yes") return;
  await tried(byId("link"), async () => {
    await fetched(path, { method: "POST", body: JSON.stringify(body) });
    shown.refresh(last);
  });
}

function go() {
  const wanted = location.hash.slice(1);
  const name = tabs().some(({ hash }) => hash === `#${wanted}`) ? wanted : "overview";
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  shown = new VIEWS[name](act, last);
  byId("view").replaceChildren(element("h2", { class: "unseen" }, name), ...shown.elements);
  if (last) shown.refresh(last);
}

function drawHead(told) {
  byId("name").textContent = told.name;
  byId("where").textContent = told.where;
  if (told.gone) {
    byId("link").textContent = `${told.gone}. It is looked for until it is there again.`;
    document.title = `gone: ${told.name}`;
    if (last) byId("progress").textContent = `When it was last seen: ${progressOf(last)}`;
    return;
  }
  byId("link").textContent = "";
  const { calls } = told;
  byId("bar").replaceChildren(...STATES.filter((state) => calls[state]).map((state) => {
    const piece = element("div", { class: state });
    piece.style.flexGrow = calls[state];
    return piece;
  }));
  byId("bar").setAttribute("aria-label", numbered(calls, SHOWN));
  if (told.ended && !answers) drawEnd(progressOf(told));
  else byId("progress").textContent = progressOf(told);
  document.title = `${told.ended ? "ended:" : `${percentage(told)} %`} ${told.name}`;
}

/** Say how the run has ended, once: a link that is drawn anew loses the focus, and presses. */
function drawEnd(words) {
  const place = byId("progress");
  if (place.firstChild?.data === words && place.querySelector("a")) return;
  const link = element("a", { href: "/report", download: "" }, "The report, as a file");
  place.replaceChildren(words, " ", link);
}

function progressOf(told) {
  const { calls, total } = told;
  if (told.ended) {
    // Calls that the end of the script has kept from an outcome are told as they were.
    return `Ended at ${told.ended}, ${numbered(calls)}. It took ${told.elapsed}.`;
  }
  const left = told.left ? `, about ${told.left} left` : "";
  const seen = told.seen ? `At ${told.seen}: ` : "";
  return (
    `${seen}${counted(ended(calls))} of ${counted(total)} calls ended `
    + `(${percentage(told)} %): ${numbered(calls, SHOWN)}. For ${told.elapsed}${left}.`
  );
}

function percentage({ calls, total }) {
  return total ? Math.floor((100 * ended(calls)) / total) : 0;
}

/** Return the numbers of calls in these states, which are always told, and in others if any. */
function numbered(calls, always = ["done", "failed"]) {
  const told = STATES.filter((state) => always.includes(state) || calls[state]);
  return told.map((state) => `${counted(calls[state])} ${state}`).join(", ");
}

function take(told) {
  drawHead(told);
  const begins = last === null || last.actions !== told.actions;
  if (told.gone) return;
  last = told;
  hasGraph ||= told.graph;
  if (!answers) byId("tab-graph").hidden = !hasGraph;
  keep(told);
  if (begins) go();
  else if (!document.hidden) shown.refresh(told);
}

function listen() {
  const events = new EventSource("/events");
  events.onmessage = ({ data }) => take(JSON.parse(data));
  events.onerror = () => {
    byId("link").textContent = "`gridengine page` gives no answer. It is asked again and again.";
    if (events.readyState !== EventSource.CLOSED) return;
    setTimeout(listen, AGAIN_SECONDS * 1000);
  };
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    const input = document.querySelector("main input[type=search]");
    if (!input) return;
    event.preventDefault();
    input.focus();
  } else if (/^[1-9]$/.test(event.key)) {
    const link = tabs()[event.key - 1];
    if (link) location.hash = link.hash;
  }
}

byId("tabs").append(...Object.keys(VIEWS).map((name) => (
  element("li", { id: `tab-${name}` }, element("a", { href: `#${name}` }, name))
)));
for (const [name, path] of Object.entries(NEEDS)) {
  byId(`tab-${name}`).hidden = answers ? !(path in answers) : name === "graph";
}
window.addEventListener("hashchange", go);
document.addEventListener("keydown", pressed);
go();
if (answers) take(answers["/overview"]);
else listen();
