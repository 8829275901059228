// The head of the page, its views, and what comes from the server each second.

import { counted, element, fetched, tried } from "./dom.js";
import { CallsView, FailuresView, LogsView, OverviewView, WorkersView, keep } from "./views.js";
import { GraphView } from "./graph.js";
import { TimelineView } from "./timeline.js";

const VIEWS = {
  overview: OverviewView, workers: WorkersView, calls: CallsView, graph: GraphView,
  timeline: TimelineView, failures: FailuresView, logs: LogsView,
};
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
  const name = wanted in VIEWS ? wanted : "overview";
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
    return;
  }
  byId("link").textContent = "";
  const { calls, total } = told;
  const ended = calls.done + calls.failed;
  const part = total ? Math.floor((100 * ended) / total) : 0;
  byId("bar").replaceChildren(...STATES.filter((state) => calls[state]).map((state) => {
    const piece = element("div", { class: state });
    piece.style.flexGrow = calls[state];
    return piece;
  }));
  const words = STATES.map((state) => `${counted(calls[state])} ${state}`).join(", ");
  byId("bar").setAttribute("aria-label", words);
  const left = told.left ? `, about ${told.left} left` : "";
  byId("progress").textContent = (
    `${counted(ended)} of ${counted(total)} calls ended (${part} %): ${words}. `
    + `For ${told.elapsed}${left}.`
  );
  document.title = `${part} % ${told.name}`;
}

function listen() {
  const events = new EventSource("/events");
  events.onmessage = ({ data }) => {
    const told = JSON.parse(data);
    drawHead(told);
    const begins = last === null || last.actions !== told.actions;
    if (told.gone) return;
    last = told;
    keep(told);
    if (begins) go();
    else if (!document.hidden) shown.refresh(told);
  };
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
    const name = Object.keys(VIEWS)[event.key - 1];
    if (name) location.hash = name;
  }
}

byId("tabs").append(...Object.keys(VIEWS).map((name) => (
  element("li", {}, element("a", { href: `#${name}` }, name))
)));
window.addEventListener("hashchange", go);
document.addEventListener("keydown", pressed);
go();
listen();
