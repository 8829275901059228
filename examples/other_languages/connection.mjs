// A connection to a dispatcher: CURVE, a session, and signs of life.
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import net from "node:net";
import { Dealer } from "zeromq";

import { Session, decodeFrames, encodeFrames } from "./protocol.mjs";

const BEAT = ["Beat"];

// Return the first address that takes connections.
async function reachable(addresses) {
  for (const address of addresses) {
    const { hostname, port } = new URL(address.replace("tcp:", "http:"));
    const found = await new Promise((resolve) => {
      const host = hostname.replace(/[[\]]/g, "");
      const socket = net.connect({ host, port: Number(port), timeout: 3000 });
      const end = (answer) => (socket.destroy(), resolve(answer));
      socket.once("connect", () => end(true));
      socket.once("error", () => end(false)).once("timeout", () => end(false));
    });
    if (found) return address;
  }
  throw new Error(`none of ${addresses.join(", ")} answers`);
}

export class Connection {
  #session = new Session();
  #sending = Promise.resolve();
  #closed = false;

  // `path` is that of a connection file, which only its user may read.
  static open(path) {
    return Connection.to(JSON.parse(readFileSync(path, "utf8")));
  }

  // `facts` are those of such a file.
  static async to(facts) {
    const connection = new Connection();
    connection.facts = facts;
    connection.receivedAt = performance.now();
    connection.socket = new Dealer({
      routingId: randomBytes(16).toString("hex"),
      curveServerKey: facts.server_key,
      curvePublicKey: facts.client_public ?? facts.worker_public,
      curveSecretKey: facts.client_secret ?? facts.worker_secret,
      linger: 0,
      ipv6: true,
      heartbeatInterval: 3000,
      heartbeatTimeout: 10000,
    });
    connection.socket.connect(await reachable(facts.addresses));
    const beat = () => connection.#sendFrames(connection.#session.unnumbered(encodeFrames(BEAT)));
    connection.beating = setInterval(beat, 1000 * facts.beat_seconds);
    return connection;
  }

  send(message, buffers = []) {
    for (const frames of this.#session.number(encodeFrames(message, buffers)))
      this.#sendFrames(frames);
  }

  // One send at a time: that is how a socket of zeromq's wants it.
  #sendFrames(frames) {
    this.#sending = this.#sending.then(() => (this.#closed ? undefined : this.socket.send(frames)));
    this.#sending.catch(() => undefined);
  }

  // Yield what comes, as [message, buffers].
  async *messages() {
    for await (const frames of this.socket) {
      this.receivedAt = performance.now();
      const [content, answers] = this.#session.receive(frames);
      answers.forEach((one) => this.#sendFrames(one));
      if (content === null) continue;
      const [message, buffers] = decodeFrames(content);
      if (message[0] !== "Beat") yield [message, buffers];
    }
  }

  // Say goodbye, wait until the dispatcher has all that was sent, within reason, and close.
  async close(reason, goodbye = ["Goodbye", reason, null]) {
    this.send(goodbye);
    const until = performance.now() + 5000;
    while (this.#session.unacknowledged && performance.now() < until) {
      this.#sendFrames(this.#session.unnumbered(encodeFrames(BEAT)));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await this.#sending.catch(() => undefined);
    this.abandon();
  }

  // Close at once: nobody is to be told.
  abandon() {
    clearInterval(this.beating);
    this.#closed = true;
    this.socket.close();
  }
}
