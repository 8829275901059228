// A client: node client.mjs CONNECTION_FILE CODEC FUNCTION ARGUMENT...
//
// Each ARGUMENT is JSON; FUNCTION is module:function, which a worker in Python imports, or the name
// of one that a worker announces. Prints the results, as a list in JSON.
import { hostname } from "node:os";
import { pathToFileURL } from "node:url";

import { Connection } from "./connection.mjs";
import { CODECS, VERSION } from "./protocol.mjs";

const NUMBER_BITS = 40n;

export class Client {
  #calls = new Map();
  #defined = new Set();

  static async connect(path, codec = "json") {
    const client = new Client();
    client.codec = codec;
    const welcomed = new Promise((resolve, reject) => (client.welcomed = { resolve, reject }));
    client.#begin(await Connection.open(path));
    client.working = client.#work();
    await welcomed;
    return client;
  }

  #begin(connection) {
    this.connection = connection;
    const hello = ["ClientHello", VERSION, "javascript 1", VERSION, "", hostname(), process.pid];
    connection.send([...hello, "client.mjs", "", 0, 1, this.codec]);
  }

  // Return a promise of the results of one call for each item.
  map(name, items, { path = [] } = {}) {
    if (!items.length) return Promise.resolve([]);
    return new Promise((resolve, reject) => {
      const values = new Array(items.length);
      this.#submit({ name, items, path, resolve, reject, values, left: items.length });
    });
  }

  #submit(call) {
    const { name, items, path } = call;
    const number = (this.next += 1n);
    const encode = (text) => Buffer.from(text);
    const known = this.#defined.has(name);
    this.#defined.add(name);
    const directory = encode(path[0] ?? "");
    const item = known ? null : [name, path.map(encode), directory, [], [], null, 0, this.codec];
    const options = [0, 2, null, false, false, "", 0, null, 1, []];
    const task = [number, items.length, ...options, number, [], [], 1];
    this.#calls.set(number, call);
    const payload = CODECS[this.codec].encode(items);
    this.connection.send(["ChildTasks", 0, 0, encode(name), [task], item, [], false], [payload]);
  }

  async call(name, argument, options) {
    return (await this.map(name, [argument], options))[0];
  }

  // Read what comes; connect anew to a dispatcher that was killed and started again.
  async #work() {
    try {
      while (await this.#read()) {
        this.connection.abandon();
        this.#begin(await Connection.to(this.connection.facts));
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  // Return whether the dispatcher was started again: it does not know this client.
  async #read() {
    for await (const [message, buffers] of this.connection.messages()) {
      const [type, ...fields] = message;
      if (type === "ChildrenWelcome") this.#welcome(BigInt(fields[1]) << NUMBER_BITS);
      else if (type === "Rejoin" && !this.closing) return true;
      else if (type === "Refuse" || type === "Goodbye")
        this.#fail(new Error(`the dispatcher: ${fields[0]}`));
      else if (type === "ChildrenFinished") {
        for (const outcome of fields[1]) this.#settle(outcome, buffers);
        if (fields[2]) this.connection.send(["OutcomesTaken", [fields[2]]]);
      }
    }
    return false;
  }

  // Submit what has not ended, by numbers of this connection: such calls may be made twice.
  #welcome(first) {
    const calls = [...this.#calls.values()];
    this.next = first;
    this.#calls.clear();
    this.#defined.clear();
    for (const call of calls) this.#submit(Object.assign(call, { left: call.items.length }));
    this.welcomed.resolve();
  }

  // Settle calls by one item of a list of outcomes, and take its buffers from these.
  #settle([task, start, stop, count, raised, failed, , output], buffers) {
    const payload = buffers.splice(0, Number(count) + (failed ? 1 : 0) + (output ? 2 : 0));
    const call = this.#calls.get(BigInt(task));
    if (!call) return;
    const told = payload.length ? CODECS[this.codec].decode(payload[0]) : null;
    if (raised || failed || told === null) {
      const error = new Error(told?.message ?? "taken back");
      this.#calls.delete(BigInt(task));
      const name = told?.type ?? "Cancelled";
      call.reject(Object.assign(error, { name, remote: told?.traceback }));
      return;
    }
    told.forEach((value, place) => (call.values[Number(start) + place] = value));
    call.left -= Number(stop) - Number(start);
    if (call.left === 0) {
      this.#calls.delete(BigInt(task));
      call.resolve(call.values);
    }
  }

  #fail(error) {
    this.welcomed.reject(error);
    for (const { reject } of this.#calls.values()) reject(error);
    this.#calls.clear();
  }

  async close() {
    this.closing = true; // what is asked after that is answered by Rejoin
    await this.connection.close("closed");
    await this.working;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [path, codec, name, ...items] = process.argv.slice(2);
  const client = await Client.connect(path, codec);
  const printable = (key, value) => (typeof value === "bigint" ? Number(value) : value);
  try {
    const results = await client.map(name, items.map((one) => JSON.parse(one)));
    console.log(JSON.stringify(results, printable));
  } catch (error) {
    console.log(`${error.name}: ${error.message}`);
    process.exitCode = 1;
  } finally {
    await client.close();
  }
}
