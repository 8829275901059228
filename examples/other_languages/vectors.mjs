// Try protocol.mjs by the vectors: node vectors.mjs FOLDER
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { CODECS, Session, decodeFrames, encodeFrames } from "./protocol.mjs";

const read = (name) => JSON.parse(readFileSync(join(process.argv[2], `${name}.json`)));
const bytesOf = (text) => {
  const [digits, count = "1"] = text.split("*");
  const once = Buffer.from(digits, "hex");
  return count === "1" ? once : Buffer.alloc(Number(count), once);
};
const textOf = (bytes) => Buffer.from(bytes).toString("hex");
const same = (frames, texts) =>
  assert.deepEqual(frames.map(textOf), texts.map((one) => textOf(bytesOf(one))));
let count = 0;

// A message's fields in their order, as the wire has them.
const fieldsOf = (value) => {
  if (value?.hex !== undefined) return Buffer.from(value.hex, "hex");
  if (Array.isArray(value)) return value.map(fieldsOf);
  return value;
};
const plain = (value) => {
  if (value instanceof Uint8Array) return Buffer.from(value);
  if (typeof value === "bigint") return Number(value);
  return Array.isArray(value) ? value.map(plain) : value;
};

for (const { message, buffers, frames } of [...read("messages"), ...read("framing")]) {
  const [decoded, found] = decodeFrames(frames.map(bytesOf));
  same(found, buffers);
  same(encodeFrames(decoded, found), frames);
  const fields = Object.values(message);
  assert.equal(decoded.length, fields.length);
  for (const [place, field] of fields.entries()) {
    const structured = (one) => one !== null && typeof one === "object" && one.hex === undefined;
    const nested = structured(field) && (Array.isArray(field) ? field.some(structured) : true);
    if (!nested) assert.deepEqual(plain(decoded[place]), fieldsOf(field));
  }
  count += 1;
}
for (const { name, frames } of read("malformed")) {
  assert.throws(() => decodeFrames(frames.map(bytesOf)), Error, name);
  count += 1;
}
const ends = { a: new Session(8), b: new Session(8) };
for (const step of read("session")) {
  const end = ends[step.end];
  if (step.send)
    end.number(step.send.map(bytesOf)).forEach((sent, place) => same(sent, step.gives[place]));
  else if (step.send_unnumbered)
    same(end.unnumbered(step.send_unnumbered.map(bytesOf)), step.gives[0]);
  else {
    const [whole, answers] = end.receive(step.receive.map(bytesOf));
    if (step.message === null) assert.equal(whole, null);
    else same(whole, step.message);
    assert.equal(answers.length, step.answers.length);
    answers.forEach((one, place) => same(one, step.answers[place]));
    assert.equal(end.unacknowledged, step.unacknowledged);
  }
  count += 1;
}
for (const { codec, value, hex } of read("codecs")) {
  assert.deepEqual(CODECS[codec].decode(Buffer.from(hex, "hex")), value);
  assert.equal(textOf(CODECS[codec].encode(value)), hex);
  count += 1;
}
console.log(`${count} vectors passed`);
