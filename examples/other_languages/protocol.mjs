// The protocol as docs/protocol.md has it: messages to frames and back, sessions, codecs. No
// sockets.
import { Decoder, Encoder } from "@msgpack/msgpack";

export const VERSION = 12;
export const PIECE = 256 * 1024;
const SMALL = 32 * 1024;
const MAGIC = Buffer.from([0x47, 0x45, 0x70, VERSION]);
const NUMBERED = 0, UNNUMBERED = 1, RESEND = 2, FRAME = 3, PIECE_KIND = 4;
const ENVELOPE_BYTES = 21;

// Numbers of tasks need 64 bits.
const encoder = new Encoder({ useBigInt64: true });
const decoder = new Decoder({ useBigInt64: true });
export const pack = (value) => Buffer.from(encoder.encode(value));
export const unpack = (bytes) => decoder.decode(bytes);

// A message is an array: the name of its type, then its fields in their order.
export function encodeFrames(message, buffers = []) {
  const small = buffers.filter((one) => one.length <= SMALL);
  const large = buffers.filter((one) => one.length > SMALL);
  const header = Buffer.concat([MAGIC, pack([buffers.map((one) => one.length), message])]);
  return [header, ...(small.length ? [Buffer.concat(small)] : []), ...large];
}

export function decodeFrames(frames) {
  if (!frames.length || !Buffer.from(frames[0]).subarray(0, 4).equals(MAGIC))
    throw new Error(`not a message of protocol version ${VERSION}`);
  const [sizes, message] = unpack(Buffer.from(frames[0]).subarray(4));
  const rest = frames.slice(1).map((one) => Buffer.from(one));
  const small = sizes.some((size) => size <= SMALL) ? rest.shift() : Buffer.alloc(0);
  if (small === undefined) throw new Error("a buffer is missing");
  let offset = 0;
  const buffers = sizes.map((size) => {
    if (size > SMALL) {
      const large = rest.shift();
      if (large?.length !== size) throw new Error("a large buffer is missing, or of another size");
      return large;
    }
    offset += size;
    return small.subarray(offset - size, offset);
  });
  if (offset !== small.length || rest.length) throw new Error("sizes and frames do not agree");
  if (message.length === 1 && buffers.length) throw new Error("buffers that nobody announced");
  return [message, buffers];
}

// One end: numbers what is sent, keeps it until it is acknowledged, drops what comes twice.
export class Session {
  #sent = 0n;
  #received = 0n;
  #asked = 0;
  #answered = 0;
  #kept = [];
  #frames = [];
  #pieces = [];

  constructor(piece = PIECE) {
    this.piece = piece;
  }

  get unacknowledged() {
    return this.#kept.length;
  }

  number(frames) {
    return [...this.#cut(frames)].map(([kind, content]) => {
      this.#sent += 1n;
      this.#kept.push([this.#sent, kind, content]);
      return [this.#envelope(kind, this.#sent), ...content];
    });
  }

  unnumbered(frames) {
    return [this.#envelope(UNNUMBERED, this.#sent), ...frames];
  }

  // Return the message that is complete with these frames, or null, and what to send at once.
  receive(frames) {
    const envelope = Buffer.from(frames[0]);
    if (envelope.length !== ENVELOPE_BYTES) throw new Error("a message without an envelope");
    const kind = envelope.readUInt8(0);
    const number = envelope.readBigUInt64LE(1);
    const acknowledged = envelope.readBigUInt64LE(9);
    const asked = envelope.readUInt32LE(17);
    while (this.#kept.length && this.#kept[0][0] <= acknowledged) this.#kept.shift();
    if (kind === RESEND) return [null, this.#resend(asked)];
    const content = frames.slice(1);
    if (number > this.#received + (kind === UNNUMBERED ? 0n : 1n))
      return [kind === UNNUMBERED ? content : null, this.#request(kind, asked)];
    if (kind === UNNUMBERED) return [content, []];
    if (number <= this.#received) return [null, []];
    this.#received = number;
    return [this.#join(kind, content), []];
  }

  #join(kind, content) {
    if (kind === NUMBERED && !this.#pieces.length && !this.#frames.length) return content;
    if (kind === PIECE_KIND || this.#pieces.length) this.#pieces.push(Buffer.from(content[0]));
    if (kind === PIECE_KIND) return null;
    const last = this.#pieces.length ? [Buffer.concat(this.#pieces)] : content;
    this.#pieces = [];
    this.#frames.push(...last);
    if (kind === FRAME) return null;
    const whole = this.#frames;
    this.#frames = [];
    return whole;
  }

  #resend(asked) {
    if (asked <= this.#answered) return [];
    this.#answered = asked;
    return this.#kept.map(([number, kind, content]) => [this.#envelope(kind, number), ...content]);
  }

  #request(kind, answered) {
    if (answered === this.#asked) this.#asked += 1;
    else if (kind !== UNNUMBERED) return [];
    const envelope = this.#envelope(RESEND, this.#sent);
    envelope.writeUInt32LE(this.#asked, 17);
    return [[envelope]];
  }

  #envelope(kind, number) {
    const envelope = Buffer.alloc(ENVELOPE_BYTES);
    envelope.writeUInt8(kind, 0);
    envelope.writeBigUInt64LE(number, 1);
    envelope.writeBigUInt64LE(this.#received, 9);
    envelope.writeUInt32LE(this.#answered, 17);
    return envelope;
  }

  // A long message travels frame by frame, and piece by piece.
  *#cut(frames) {
    if (frames.reduce((sum, one) => sum + one.length, 0) <= this.piece) {
      yield [NUMBERED, frames];
      return;
    }
    for (const [place, frame] of frames.entries())
      for (let start = 0; start === 0 || start < frame.length; start += this.piece) {
        const ends = start + this.piece >= frame.length;
        const last = place === frames.length - 1;
        const kind = ends ? (last ? NUMBERED : FRAME) : PIECE_KIND;
        yield [kind, [frame.subarray(start, start + this.piece)]];
      }
  }
}

// What calls are given, and return, as bytes.
export const CODECS = {
  json: {
    encode: (value) => Buffer.from(JSON.stringify(value)),
    decode: (bytes) => JSON.parse(Buffer.from(bytes).toString()),
  },
  msgpack: { encode: pack, decode: unpack },
};
