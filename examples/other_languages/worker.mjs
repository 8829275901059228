// A worker: node worker.mjs CONNECTION_FILE
//
// It announces the functions below; calls of these come here, and nowhere else. It makes one call
// at a time, in its own process: limits of time and memory that a client asks for do not hold
// here.
import { hostname } from "node:os";
import { pathToFileURL } from "node:url";

import { Connection } from "./connection.mjs";
import { CODECS, VERSION } from "./protocol.mjs";

const VALUES = 0, RAISED = 1, STAR = 1, FULL = 2;
const REFUSED = 3, AGAIN = 4; // AGAIN: the dispatcher was started again

export const FUNCTIONS = {
  mean: (numbers) => numbers.reduce((sum, one) => sum + Number(one), 0) / numbers.length,
  reversed: (text) => [...text].reverse().join(""),
  where: () => ({ language: "javascript", pid: process.pid }),
  slow: (seconds) =>
    new Promise((resolve) => setTimeout(() => resolve(seconds), 1000 * Number(seconds))),
  refuse: (what) => {
    throw new RangeError(`no ${what} here`);
  },
};

export class Worker {
  #names = new Map();
  #queue = [];
  // what became of runs that are not to go on: a signal, or 0 for those recalled
  #ended = new Map();
  #run = null;
  #wake = null;
  reason = "";
  status = 0;

  constructor(functions) {
    this.functions = functions;
  }

  // Work until told to stop; return the exit status, or AGAIN.
  async work(path) {
    this.connection = await Connection.open(path);
    const { run_id, lease_seconds } = this.connection.facts;
    const names = Object.keys(this.functions);
    this.connection.send([
      "Hello", VERSION, "javascript 1", "", run_id, hostname(), process.pid, 1, "", 0, null, names,
    ]);
    const watching = setInterval(() => {
      const silence = performance.now() - this.connection.receivedAt;
      if (silence > 1000 * lease_seconds) this.#leave("no word", 1);
    }, 1000);
    const terminate = () => this.#leave("terminated");
    process.once("SIGTERM", terminate);
    const reading = this.#read();
    await this.#make();
    clearInterval(watching);
    process.off("SIGTERM", terminate);
    const begun = this.#run === null ? [] : [this.#run];
    if (this.status === AGAIN) this.connection.abandon();
    else await this.connection.close(this.reason, ["Goodbye", this.reason, begun]);
    await reading;
    return this.status;
  }

  #leave(reason, status = 0) {
    if (!this.reason) [this.reason, this.status] = [reason, status];
    this.#wake?.();
  }

  async #read() {
    for await (const [[type, ...fields], buffers] of this.connection.messages()) {
      if (type === "Stop") this.#leave("told to stop");
      else if (type === "Refuse") this.#leave(`refused: ${fields[0]}`, REFUSED);
      else if (type === "Rejoin") this.#leave("the dispatcher was started again", AGAIN);
      else if (type === "Define") this.#define(fields, buffers);
      else if (type === "Forget") fields[0].forEach((one) => this.#names.delete(hex(one)));
      else if (type === "Cancel") this.#end(fields[0], fields[1]);
      else if (type === "Recall") this.#end(fields[0], 0);
      else if (type === "Assign") {
        for (const assignment of fields[0])
          this.#queue.push([assignment, buffers.splice(0, Number(assignment[12]))]);
        this.#wake?.();
      }
    }
  }

  #define(fields, buffers) {
    this.#names.set(hex(fields[0]), [buffers[0].toString(), fields[8]]);
  }

  // Have runs not begin, or not go on.
  #end(runs, signal) {
    for (const run of runs) {
      const place = this.#queue.findIndex(([assignment]) => assignment[0] === run);
      if (place < 0) {
        if (run === this.#run) this.#ended.set(run, signal);
      } else {
        this.#queue.splice(place, 1);
        this.#tellEnded(run, -1, signal);
      }
    }
  }

  // Give back what is left of a run, from this call on; or say that it was cancelled.
  #tellEnded(run, index, signal) {
    const empty = Buffer.alloc(0);
    const crashed = ["Crashed", run, index, -signal, "cancelled", 0, 0, 0];
    if (signal) this.connection.send(crashed, [empty, empty]);
    else this.connection.send(index < 0 ? ["Returned", [run], ""] : ["Shortened", run, index]);
  }

  async #make() {
    while (!this.reason) {
      const next = this.#queue.shift();
      if (next) await this.#makeRun(...next);
      else await new Promise((resolve) => (this.#wake = resolve));
    }
  }

  async #makeRun(assignment, payload) {
    const [run, , digest, start, stop, , form] = assignment;
    const [name, codecName] = this.#names.get(hex(digest));
    const codec = CODECS[codecName];
    const calls = codec.decode(payload[0]);
    this.#run = run;
    for (let index = start; index < stop && !this.reason; index += 1) {
      await new Promise(setImmediate); // what has come meanwhile is read
      if (this.#ended.has(run)) {
        this.#tellEnded(run, index, this.#ended.get(run));
        break;
      }
      const begun = performance.now();
      const [status, told] = await this.#outcome(this.functions[name], calls[index], form);
      const seconds = (performance.now() - begun) / 1000;
      const result = [run, index, index + 1, status, seconds, 1, false, 0, null];
      this.connection.send(["Results", [result]], [codec.encode(told)]);
    }
    if (!this.reason) this.#run = null;
    this.#ended.delete(run);
  }

  async #outcome(f, call, form) {
    try {
      const given = form === FULL ? [...call[0], call[1]] : form === STAR ? call : [call];
      return [VALUES, [(await f(...given)) ?? null]];
    } catch (error) {
      const { name: type, message, stack: traceback } = error;
      return [RAISED, { type, message, traceback, arguments: "" }];
    }
  }
}

const hex = (bytes) => Buffer.from(bytes).toString("hex");

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  let status = AGAIN;
  while (status === AGAIN) status = await new Worker(FUNCTIONS).work(process.argv[2]);
  process.exit(status);
}
