// `artifact(name, data, opts?)`: hands a file back to the caller (SPEC 8.1).
//
// Decides in which form the data is and calls the op for it. What is wrong is thrown at once, synchronously; the promise settles
// after the commit that holds the artifact. Bytes are copied once, into the store.

import { core, primordials } from "ext:core/mod.js";
import {
  op_mcpx_artifact_base64,
  op_mcpx_artifact_bytes,
  op_mcpx_artifact_path,
  op_mcpx_artifact_text,
} from "ext:core/ops";
const {
  ArrayBufferIsView,
  ArrayIsArray,
  ArrayPrototypeJoin,
  ArrayPrototypePush,
  Error,
  JSONParse,
  NumberIsFinite,
  ObjectKeys,
  PromisePrototypeThen,
  String,
  TypedArrayPrototypeSet,
  TypeError,
  Uint8Array,
} = primordials;

// A failure of mcpx itself, not of a tool: an artifact that was not stored, a module that cannot be had. `code` is the error kind.
class McpxError extends Error {
  name = "McpxError";
}
core.registerErrorClass("McpxFailure", McpxError);

function kindOf(value) {
  if (value === null) return "null";
  if (ArrayIsArray(value)) return "an array";
  if (typeof value === "object") {
    const keys = ObjectKeys(value);
    if (keys.length === 0) return "an object without properties";
    if (keys.length > 6) return "an object with many properties";
    return `an object with the properties ${ArrayPrototypeJoin(keys, ", ")}`;
  }
  return `a value of type ${typeof value}`;
}

function ttlOf(ttl) {
  if (ttl === undefined || ttl === null) return NaN;
  if (typeof ttl === "number" && NumberIsFinite(ttl) && ttl >= 1) return ttl;
  throw new TypeError("artifact(): ttl is a number of milliseconds, at least 1");
}

function mimeOf(mime) {
  if (mime === undefined || mime === null) return null;
  if (typeof mime === "string" && mime !== "") return mime;
  throw new TypeError("artifact(): mime is a non-empty string");
}

// The first media block of an MCP result: image, audio or a resource with a blob (text resources count last).
function mediaBlock(content) {
  let textual = null;
  for (let i = 0; i < content.length; i++) {
    const block = content[i];
    if (block === null || typeof block !== "object") continue;
    if ((block.type === "image" || block.type === "audio") && typeof block.data === "string") return block;
    if (block.type === "resource" && block.resource !== null && typeof block.resource === "object") {
      if (typeof block.resource.blob === "string") return block;
      if (typeof block.resource.text === "string") textual ??= block;
    }
  }
  return textual;
}

function concat(chunks, total) {
  const bytes = new Uint8Array(total);
  let at = 0;
  for (let i = 0; i < chunks.length; i++) {
    TypedArrayPrototypeSet(bytes, chunks[i], at);
    at += chunks[i].length;
  }
  return bytes;
}

async function collect(stream) {
  const reader = stream.getReader();
  const chunks = [];
  let total = 0;
  const encoder = new globalThis.TextEncoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return concat(chunks, total);
    const bytes = typeof value === "string" ? encoder.encode(value) : bytesOf(value);
    if (bytes === null) throw new TypeError(`artifact(): the stream yielded ${kindOf(value)}; chunks are bytes or strings`);
    ArrayPrototypePush(chunks, bytes);
    total += bytes.length;
  }
}

// A Uint8Array over the bytes of a buffer or view; null for anything else.
function bytesOf(data) {
  if (ArrayBufferIsView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (core.isAnyArrayBuffer(data)) return new Uint8Array(data);
  return null;
}

async function later(name, mime, ttl, bytes) {
  return await op_mcpx_artifact_bytes(name, mime, ttl, await bytes);
}

function block(name, item, mime, ttl) {
  if (item.type === "resource") {
    const resource = item.resource;
    mime ??= typeof resource.mimeType === "string" ? resource.mimeType : null;
    if (typeof resource.blob === "string") return op_mcpx_artifact_base64(name, mime, ttl, resource.blob);
    return op_mcpx_artifact_text(name, mime, ttl, resource.text);
  }
  mime ??= typeof item.mimeType === "string" ? item.mimeType : null;
  return op_mcpx_artifact_base64(name, mime, ttl, item.data);
}

// Starts the write; returns the op's promise of JSON text.
function store(name, data, mime, ttl) {
  // Media wins over a caption: a tool's result that carries an image on `.raw` means the image.
  const raw = data !== null && typeof data === "object" ? data.raw : undefined;
  if (raw !== null && typeof raw === "object" && ArrayIsArray(raw.content)) {
    const media = mediaBlock(raw.content);
    if (media !== null) return block(name, media, mime, ttl);
  }
  if (typeof data === "string") return op_mcpx_artifact_text(name, mime, ttl, data);
  if (data !== null && typeof data === "object") {
    const bytes = bytesOf(data);
    if (bytes !== null) return op_mcpx_artifact_bytes(name, mime, ttl, bytes);
    if (core.isBoxedPrimitive(data) && typeof data.valueOf() === "string") {
      return op_mcpx_artifact_text(name, mime, ttl, String(data));
    }
    if (data instanceof globalThis.Blob) {
      return later(name, mime ?? (data.type === "" ? null : data.type), ttl, PromisePrototypeThen(data.arrayBuffer(), bytesOf));
    }
    if (data instanceof globalThis.ReadableStream) return later(name, mime, ttl, collect(data));
    if (ArrayIsArray(data.content)) {
      const media = mediaBlock(data.content);
      if (media !== null) return block(name, media, mime, ttl);
    } else if (ArrayIsArray(data)) {
      const media = mediaBlock(data);
      if (media !== null) return block(name, media, mime, ttl);
    } else {
      const media = mediaBlock([data]);
      if (media !== null) return block(name, media, mime, ttl);
    }
    if (typeof data.path === "string") return op_mcpx_artifact_path(name, mime, ttl, data.path);
  }
  throw new TypeError(
    `artifact(name, data): data was ${kindOf(data)}; give a string, bytes, a Blob, a ReadableStream, {path}, ` +
      "an MCP image, audio or resource item, or a tool result that carries one",
  );
}

function artifact(name, data, options = undefined) {
  if (typeof name !== "string") {
    throw new TypeError(`artifact(name, data): the name was ${kindOf(name)}; it comes first and is a string`);
  }
  if (typeof data === "string" && (typeof options === "string" || options !== null && bytesOf(options) !== null)) {
    throw unsupported("artifact(key, mime, bytes)");
  }
  if (options !== undefined && (options === null || typeof options !== "object")) {
    throw new TypeError("artifact(name, data, options): options is an object {mime, ttl}");
  }
  if (options?.key !== undefined) throw unsupported("artifact(..., {key})");
  const stored = store(name, data, mimeOf(options?.mime), ttlOf(options?.ttl));
  return PromisePrototypeThen(stored, JSONParse);
}

function unsupported(what) {
  const error = new McpxError(`${what} is not supported yet: the keyed namespace does not exist in this version`);
  error.code = "unsupported";
  return error;
}

artifact.get = () => { throw unsupported("artifact.get()"); };
artifact.list = () => { throw unsupported("artifact.list()"); };
artifact.delete = () => { throw unsupported("artifact.delete()"); };

function input() {
  throw unsupported("input()");
}

export { artifact, McpxError, input };
