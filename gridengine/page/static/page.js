// The head of the page, its views, and what comes from the server each second.

import { answers, counted, element, fetched, tried } from "./dom.js";
import {
  CallsView, FailuresView, LogsView, OverviewView, SettingsView, WorkersView, keep,
} from "./views.js";
import { GraphView } from "./graph.js";
import { TimelineView } from "./timeline.js";

const VIEWS = {
  overview: OverviewView, workers: WorkersView, calls: CallsView, graph: GraphView,
  timeline: TimelineView, failures: FailuresView, logs: LogsView, settings: SettingsView,
};
/** The answers without which a view has nothing to show. */
const NEEDS = { workers: "/rows/workers", calls: "/rows/calls", graph: "/graph" };
const NAMES = Object.keys(VIEWS).filter((name) => (
  !answers || !(name in NEEDS) || NEEDS[name] in answers
));
const AGAIN_SECONDS = 3;
const STATES = ["done", "failed", "running", "waiting"];

const byId = (id) => document.getElementById(id);
let shown = null;
let last = null;

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
  const name = NAMES.includes(wanted) ? wanted : "overview";
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
  byId("bar").setAttribute("aria-label", numbered(calls, STATES));
  byId("progress").textContent = progressOf(told);
  document.title = `${told.ended ? "ended:" : `${percentage(told)} %`} ${told.name}`;
}

function progressOf(told) {
  const { calls, total } = told;
  if (told.ended) {
    // Calls that the end of the script has kept from an outcome are told as they were.
    const known = STATES.filter((state, place) => place < 2 || calls[state]);
    return `Ended at ${told.ended}, ${numbered(calls, known)}. It took ${told.elapsed}.`;
  }
  const left = told.left ? `, about ${told.left} left` : "";
  const seen = told.seen ? `At ${told.seen}: ` : "";
  return (
    `${seen}${counted(calls.done + calls.failed)} of ${counted(total)} calls ended `
    + `(${percentage(told)} %): ${numbered(calls, STATES)}. For ${told.elapsed}${left}.`
  );
}

function percentage({ calls, total }) {
  return total ? Math.floor((100 * (calls.done + calls.failed)) / total) : 0;
}

function numbered(calls, states) {
  return states.map((state) => `${counted(calls[state])} ${state}`).join(", ");
}

function take(told) {
  drawHead(told);
  const begins = last === null || last.actions !== told.actions;
  if (told.gone) return;
  last = told;
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
    const name = NAMES[event.key - 1];
    if (name) location.hash = name;
  }
}

byId("tabs").append(...NAMES.map((name) => (
  element("li", {}, element("a", { href: `#${name}` }, name))
)));
window.addEventListener("hashchange", go);
document.addEventListener("keydown", pressed);
go();
if (answers) take(answers["/overview"]);
else listen();
