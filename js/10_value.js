// Renders JavaScript values as JSON text, the one way for results, emits and log attributes.
//
// Owns the rules (SPEC 4.1): what JSON has no word for gets a defined form instead of an error, and no value of the script's
// may break the run: getters that throw, cycles, proxies, depth and size are all met here.
//
//   undefined, functions, symbols   left out of objects, null in arrays; alone: no value
//   BigInt                          its decimal digits as a string
//   Date                            ISO text, null when invalid
//   Map                             array of [key, value] pairs; Set: array
//   Error                           {name, message, stack, cause?, ...own properties}
//   ArrayBuffer and views           {type, byteLength, base64} up to 64 KiB of bytes, beyond it without base64
//   RegExp, URL                     their text
//   cycle                           "[Circular]"; a getter that throws: "[Thrown: message]"; deeper than 500: "[Deep]"

import { core, primordials } from "ext:core/mod.js";
const {
  ArrayBufferIsView,
  ArrayIsArray,
  ArrayPrototypePush,
  DatePrototypeToISOString,
  DatePrototypeGetTime,
  ErrorPrototype,
  JSONStringify,
  MapPrototypeForEach,
  NumberIsNaN,
  ObjectKeys,
  ObjectPrototypeIsPrototypeOf,
  RangeError,
  RegExpPrototypeToString,
  SafeArrayIterator,
  SafeSet,
  SetPrototypeAdd,
  SetPrototypeDelete,
  SetPrototypeForEach,
  SetPrototypeHas,
  String,
  StringPrototypeIsWellFormed,
  StringPrototypeToWellFormed,
  SymbolToStringTag,
  Uint8Array,
} = primordials;
const {
  isAnyArrayBuffer,
  isBoxedPrimitive,
  isDate,
  isMap,
  isNativeError,
  isRegExp,
  isSet,
  isTypedArray,
} = core;

const MAX_DEPTH = 500;
const MAX_NODES = 2_000_000;
const MAX_BYTES_SHOWN = 64 * 1024;

// A value is too large to render: the run ends with the error kind `too_large`.
class TooLarge extends RangeError {
  name = "TooLarge";
}

// Whether a value is an Error, for any value: the traps of a proxy may throw.
function isErrorLike(value) {
  try {
    return isNativeError(value) || ObjectPrototypeIsPrototypeOf(ErrorPrototype, value);
  } catch {
    return false;
  }
}

// Half a surrogate pair has no UTF-8, and strict JSON parsers refuse its escape: it becomes U+FFFD.
function wellFormed(text) {
  return StringPrototypeIsWellFormed(text) ? text : StringPrototypeToWellFormed(text);
}

function messageOf(thrown) {
  try {
    return isErrorLike(thrown) ? String(thrown.message) : String(thrown);
  } catch {
    return "?";
  }
}

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
function encodeBase64(bytes) {
  let out = "";
  const length = bytes.length;
  for (let i = 0; i < length; i += 3) {
    const a = bytes[i], b = i + 1 < length ? bytes[i + 1] : 0, c = i + 2 < length ? bytes[i + 2] : 0;
    out += ALPHABET[a >> 2] + ALPHABET[((a & 3) << 4) | (b >> 4)] +
      (i + 1 < length ? ALPHABET[((b & 15) << 2) | (c >> 6)] : "=") + (i + 2 < length ? ALPHABET[c & 63] : "=");
  }
  return out;
}

function renderBytes(value) {
  const isView = ArrayBufferIsView(value);
  const byteLength = value.byteLength;
  const type = isTypedArray(value) ? value[SymbolToStringTag] : isView ? "DataView" : "ArrayBuffer";
  const shown = { type, byteLength };
  if (byteLength <= MAX_BYTES_SHOWN) {
    const bytes = isView ? new Uint8Array(value.buffer, value.byteOffset, byteLength) : new Uint8Array(value);
    shown.base64 = encodeBase64(bytes);
  }
  return shown;
}

// Copies `value` into plain arrays, null-prototype objects and primitives that JSON.stringify takes without surprises.
function plain(value, state, depth) {
  switch (typeof value) {
    case "string":
      return wellFormed(value);
    case "number":
    case "boolean":
      return value;
    case "bigint":
      return String(value);
    case "undefined":
    case "function":
    case "symbol":
      return undefined;
  }
  if (value === null) return null;
  if (++state.nodes > MAX_NODES) {
    throw new TooLarge(`the value has more than ${MAX_NODES} parts; hand large data back with artifact()`);
  }
  if (depth > MAX_DEPTH) return "[Deep]";
  if (SetPrototypeHas(state.open, value)) return "[Circular]";
  SetPrototypeAdd(state.open, value);
  try {
    return plainObject(value, state, depth + 1);
  } finally {
    SetPrototypeDelete(state.open, value);
  }
}

function get(value, key, state, depth) {
  let inner;
  try {
    inner = value[key];
  } catch (thrown) {
    return `[Thrown: ${messageOf(thrown)}]`;
  }
  return plain(inner, state, depth);
}

function plainObject(value, state, depth) {
  if (isDate(value)) {
    return NumberIsNaN(DatePrototypeGetTime(value)) ? null : DatePrototypeToISOString(value);
  }
  if (isRegExp(value)) return RegExpPrototypeToString(value);
  if (isMap(value)) {
    const pairs = [];
    MapPrototypeForEach(value, (item, key) => {
      ArrayPrototypePush(pairs, [plain(key, state, depth) ?? null, plain(item, state, depth) ?? null]);
    });
    return pairs;
  }
  if (isSet(value)) {
    const items = [];
    SetPrototypeForEach(value, (item) => {
      ArrayPrototypePush(items, plain(item, state, depth) ?? null);
    });
    return items;
  }
  if (ArrayBufferIsView(value) || isAnyArrayBuffer(value)) return renderBytes(value);
  const isError = isErrorLike(value);
  if (!isError) {
    let toJSON;
    try {
      toJSON = value.toJSON;
      if (typeof toJSON === "function") {
        const replaced = value.toJSON("");
        if (replaced !== value) return plain(replaced, state, depth);
      }
    } catch (thrown) {
      return `[Thrown: ${messageOf(thrown)}]`;
    }
    if (isBoxedPrimitive(value)) {
      let inner;
      try {
        inner = value.valueOf();
      } catch (thrown) {
        return `[Thrown: ${messageOf(thrown)}]`;
      }
      if (typeof inner !== "object") return plain(inner, state, depth);
    }
  }
  let isArray = false;
  try {
    isArray = ArrayIsArray(value);
  } catch {
    return "[Revoked proxy]";
  }
  if (isArray) {
    let length;
    try {
      length = value.length;
    } catch (thrown) {
      return `[Thrown: ${messageOf(thrown)}]`;
    }
    if (length > MAX_NODES) {
      throw new TooLarge(`an array of ${length} elements is over ${MAX_NODES}; hand large data back with artifact()`);
    }
    state.nodes += length;
    const items = [];
    for (let i = 0; i < length; i++) ArrayPrototypePush(items, get(value, i, state, depth) ?? null);
    return items;
  }
  const shown = { __proto__: null };
  if (isError) {
    shown.name = get(value, "name", state, depth);
    shown.message = get(value, "message", state, depth);
    shown.stack = get(value, "stack", state, depth);
    const cause = get(value, "cause", state, depth);
    if (cause !== undefined) shown.cause = cause;
  }
  let keys;
  try {
    keys = ObjectKeys(value);
  } catch (thrown) {
    return `[Thrown: ${messageOf(thrown)}]`;
  }
  for (const key of new SafeArrayIterator(keys)) {
    const inner = get(value, key, state, depth);
    if (inner !== undefined) shown[wellFormed(key)] = inner;
  }
  return shown;
}

// JSON text of any value; undefined when it has none (undefined, a function, a symbol).
function render(value) {
  switch (typeof value) {
    case "string":
      return JSONStringify(wellFormed(value));
    case "number":
    case "boolean":
      return JSONStringify(value);
  }
  return JSONStringify(plain(value, { nodes: 0, open: new SafeSet() }, 0));
}

export { isErrorLike, render, TooLarge };
