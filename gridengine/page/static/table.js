// A table of which the rows that are seen are there, and no others: the server, or a report, has
// the rest.

import { answers, counted, element, fetched, tried } from "./dom.js";

const ROW = 28;
const TALLEST = 8_000_000; // Browsers draw nothing much taller; a million rows have 8 pixels each.
const FEWEST = 2;
const ACTION = 10; // Characters for the column of what can be done with a row.
const [REST, REST_NARROW] = [26, 18]; // Characters for a column that takes what is left.
const NARROW = matchMedia("(max-width: 40rem)");

/** A table with a filter, that is sorted by a press on a title. */
export class Table {
  /**
   * @param {string} view which of the server's tables.
   * @param {string} caption what is in it.
   * @param {{most?: number, filter?: string, action?: {title: string, act: function},
   *   quiet?: boolean}} options
   *   how many rows are seen at most, what the filter is for, what can be done with a row, and
   *   whether there is a filter only where not all rows are seen.
   */
  constructor(view, caption, { most = 20, filter = "Filter", action = null, quiet = false } = {}) {
    this.view = view;
    this.most = most;
    this.action = action;
    this.first = 0;
    this.total = 0;
    this.sort = null;
    this.reverse = false;
    this.asking = false;
    this.again = false;
    this.titles = "";
    this.input = element("input", { type: "search", oninput: () => this.show(0) });
    this.note = element("span", { class: "note" });
    this.range = element("span", { class: "range" });
    this.head = element("tr");
    this.body = element("tbody");
    this.columns = element("colgroup");
    this.table = element(
      "table", {}, element("caption", {}, caption), this.columns,
      element("thead", {}, this.head), this.body,
    );
    this.stretch = element("div", { class: "stretch" }, this.table);
    this.scroller = element(
      "div",
      {
        class: "scroller", tabindex: "0", role: "region", "aria-label": caption,
        onscroll: () => this.scrolled(), onkeydown: (event) => this.pressed(event),
      },
      this.stretch,
    );
    this.quiet = quiet;
    this.tools = element(
      "div", { class: "tools" },
      element("label", {}, `${filter} `, this.input), this.range, this.note,
    );
    this.element = element("section", { class: "rows" }, this.tools, this.scroller);
  }

  /** How many rows are seen at a time. */
  get visible() {
    return Math.max(Math.min(this.total, this.most), FEWEST);
  }

  /** Show another of the server's tables. */
  become(view) {
    this.view = view;
    this.sort = null;
    this.reverse = false;
    this.show(0);
  }

  /** Show the rows from this one on. */
  show(first) {
    const last = Math.max(0, this.total - this.visible);
    this.first = Math.max(0, Math.min(first, last));
    this.refresh();
    const height = this.scroller.scrollHeight - this.scroller.clientHeight;
    this.expected = last ? Math.round((this.first / last) * height) : 0;
    this.scroller.scrollTop = this.expected;
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (Math.abs(scrollTop - this.expected) < 1) return;
    this.expected = null;
    const last = Math.max(0, this.total - this.visible);
    const first = Math.round((scrollTop / Math.max(1, scrollHeight - clientHeight)) * last);
    if (first === this.first) return;
    this.first = first;
    this.refresh();
  }

  pressed(event) {
    if (event.target !== this.scroller) return;
    const moves = {
      ArrowDown: this.first + 1, ArrowUp: this.first - 1, Home: 0, End: this.total,
      PageDown: this.first + this.visible, PageUp: this.first - this.visible,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.show(moves[event.key]);
  }

  sortBy(place) {
    if (this.sort !== place) [this.sort, this.reverse] = [place, false];
    else if (!this.reverse) this.reverse = true;
    else [this.sort, this.reverse] = [null, false];
    this.show(0);
  }

  /** Ask for what is seen; while an answer is awaited once more after it. */
  async refresh() {
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    do {
      this.again = false;
      await tried(this.note, () => this.ask());
    } while (this.again);
    this.asking = false;
  }

  async ask() {
    const asked = new URLSearchParams({ first: this.first, most: this.most });
    if (this.sort !== null) asked.set("sort", this.sort);
    if (this.reverse) asked.set("reverse", "1");
    if (this.input.value) asked.set("filter", this.input.value);
    const view = this.view;
    const answer = answers ? this.part(answers[`/rows/${view}`])
      : await fetched(`/rows/${view}?${asked}`);
    if (view === this.view) this.draw(answer);
  }

  /** Return what is seen of a whole table. */
  part({ rows, ...table } = { rows: [], columns: [], note: "none" }) {
    const words = this.input.value.toLowerCase();
    const found = rows.filter(({ cells }) => (
      cells.some((cell) => cell.toLowerCase().includes(words))
    ));
    const first = Math.max(0, Math.min(this.first, found.length - this.most));
    const seen = found.slice(first, first + this.most);
    return { ...table, rows: seen, first, total: found.length };
  }

  draw({ columns, rows, first, total, note, sortable }) {
    const changed = total !== this.total;
    this.total = total;
    this.first = first;
    this.note.textContent = note;
    this.tools.hidden = this.quiet && total <= this.most && !this.input.value;
    const last = Math.min(first + this.visible, total);
    const from = total ? first + 1 : 0;
    this.range.textContent = `${counted(from)}–${counted(last)} of ${counted(total)}`;
    this.drawHead(columns, sortable);
    this.table.setAttribute("aria-rowcount", total + 1);
    const seen = rows.slice(0, this.visible);
    while (this.body.rows.length > seen.length) this.body.lastChild.remove();
    seen.forEach((row, place) => this.drawRow(place, row, columns, first));
    if (changed || !this.scroller.style.height) this.stretchOut();
  }

  stretchOut() {
    this.scroller.style.height = `${ROW * (this.visible + 1) + 16}px`;
    this.stretch.style.height = `${Math.min(ROW * (this.total + 1), TALLEST)}px`;
  }

  drawHead(columns, sortable) {
    const titles = JSON.stringify([columns, sortable]);
    if (titles !== this.titles) {
      this.titles = titles;
      this.body.replaceChildren();
      this.head.replaceChildren(...columns.map(({ title, number }, place) => {
        const press = () => this.sortBy(place);
        const inside = sortable ? element("button", { onclick: press }, title)
          : element("span", {}, title);
        return element("th", { scope: "col", class: number ? "number" : "" }, inside);
      }));
      this.columns.replaceChildren(...columns.map(({ width }) => this.column(width)));
      const rest = NARROW.matches ? REST_NARROW : REST;
      const characters = columns.reduce((sum, { width }) => sum + (width || rest) + 2, 0);
      this.table.style.minWidth = `${characters + (this.action ? ACTION + 2 : 0)}ch`;
      if (this.action) {
        this.head.append(element("th", { scope: "col" }, element("span", {}, "")));
        this.columns.append(this.column(ACTION));
      }
    }
    columns.forEach(({ number }, place) => {
      const down = number !== this.reverse;
      const cell = this.head.cells[place];
      if (place === this.sort) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  column(width) {
    const made = element("col");
    if (width) made.style.width = `${width + 2}ch`;
    return made;
  }

  drawRow(place, { key, cells }, columns, first) {
    let line = this.body.rows[place];
    if (!line) {
      line = element("tr", {}, ...columns.map(({ number }) => (
        element("td", { class: number ? "number" : "" })
      )));
      if (this.action) {
        const { title, act } = this.action;
        const press = () => act(line.dataset.key, line.cells[0].textContent);
        line.append(element("td", {}, element("button", { onclick: press }, title)));
      }
      this.body.append(line);
    }
    line.dataset.key = key;
    line.setAttribute("aria-rowindex", first + place + 2);
    cells.forEach((words, column) => {
      const cell = line.cells[column];
      if (cell.textContent === words) return;
      cell.textContent = words;
      cell.title = words;
    });
  }
}
