// Generated clients: one namespace a server, one function a tool, made when they are first touched.
//
// Owns the shape of a call and the mapping of its result (SPEC 4.4). Nothing here grows with the number of tools: a namespace is
// a proxy that asks for its server's tool table when somebody looks, and a tool's function exists once it was named.

import { core, primordials } from "ext:core/mod.js";
import {
  op_mcpx_namespaces,
  op_mcpx_search,
  op_mcpx_tool_call,
  op_mcpx_tool_cancel,
  op_mcpx_tools,
} from "ext:core/ops";
import { render } from "ext:mcpx/10_value.js";
const {
  ArrayIsArray,
  ArrayPrototypeFilter,
  ArrayPrototypeJoin,
  ArrayPrototypeMap,
  ArrayPrototypePush,
  Error,
  JSONParse,
  JSONStringify,
  MathMin,
  MathTrunc,
  NumberIsFinite,
  ObjectDefineProperty,
  ObjectFreeze,
  Proxy,
  ReferenceError,
  SafeArrayIterator,
  SafeMap,
  String,
  StringPrototypeIndexOf,
  StringPrototypeSlice,
  StringPrototypeTrim,
  SymbolToStringTag,
  TypeError,
} = primordials;

function hidden(value) {
  return { __proto__: null, value, enumerable: false, configurable: true, writable: true };
}

// A tool that reported an error, or a call that got no answer. `raw` is the whole result where there is one; `code` is the
// error kind: `tool_error` for the former, `upstream_unavailable`, `timeout`, `not_found`, ... for the latter.
class ToolError extends Error {
  constructor(message, fields) {
    super(message);
    this.server = fields?.server;
    this.tool = fields?.tool;
    this.raw = fields?.raw;
    this.code = fields?.code ?? "tool_error";
  }
}
ObjectDefineProperty(ToolError.prototype, "name", hidden("ToolError"));

// What the op's rejection is made of; turned into a ToolError before the script sees it.
class ToolFailure extends Error {}
core.registerErrorClass("McpxToolFailure", ToolFailure);

function textOf(content) {
  const blocks = ArrayPrototypeFilter(content, (block) => block?.type === "text" && typeof block.text === "string");
  return { texts: blocks.length, text: ArrayPrototypeJoin(ArrayPrototypeMap(blocks, (block) => block.text), "\n") };
}

function withRaw(value, raw) {
  if (typeof value === "object" && value !== null) {
    // A server may send a property called raw; then the script's view of its own data comes first.
    if (!primordials.ObjectHasOwn(value, "raw")) {
      ObjectDefineProperty(value, "raw", hidden(raw));
    }
  }
  return value;
}

// JSON.parse turns long integers into other numbers; a text that would lose digits stays a text when it is a bare number.
function parsed(text) {
  const trimmed = StringPrototypeTrim(text);
  if (trimmed === "") return undefined;
  let value;
  try {
    value = JSONParse(trimmed);
  } catch {
    return undefined;
  }
  if (typeof value === "number" && String(value) !== trimmed) return undefined;
  return value;
}

// The value of a successful call (SPEC 4.4).
function valueOf(raw) {
  if (raw.structuredContent !== undefined && raw.structuredContent !== null) {
    return withRaw(raw.structuredContent, raw);
  }
  const content = ArrayIsArray(raw.content) ? raw.content : [];
  const { texts, text } = textOf(content);
  if (texts === 0) return withRaw(content, raw);
  const value = parsed(text);
  if (value !== undefined) return withRaw(value, raw);
  // Only a result that carries more than text needs `.raw` on its caption, and a string can carry a property only as an object.
  if (texts < content.length) return withRaw(new primordials.String(text), raw);
  return text;
}

function errorMessage(server, tool, raw) {
  const content = ArrayIsArray(raw.content) ? raw.content : [];
  const { text } = textOf(content);
  if (StringPrototypeTrim(text) !== "") return text;
  if (raw.structuredContent !== undefined && raw.structuredContent !== null) {
    return `${server}.${tool} reported an error: ${JSONStringify(raw.structuredContent)}`;
  }
  return `${server}.${tool} reported an error without a message`;
}

let nextCallId = 1;

// {timeout: milliseconds, signal: AbortSignal}
function checkOptions(options) {
  if (options === undefined || options === null) return { timeout: NaN, signal: undefined };
  if (typeof options !== "object") throw new TypeError("the second argument of a tool is {timeout, signal}");
  const { timeout, signal } = options;
  if (timeout !== undefined && !(typeof timeout === "number" && NumberIsFinite(timeout) && timeout >= 1)) {
    throw new TypeError("timeout is a number of milliseconds, at least 1");
  }
  if (signal !== undefined && !(signal instanceof globalThis.AbortSignal)) {
    throw new TypeError("signal is an AbortSignal");
  }
  return { timeout: timeout ?? NaN, signal };
}

async function invoke(server, tool, byWireName, args, options, whole) {
  if (args === undefined || args === null) args = { __proto__: null };
  if (typeof args !== "object" || ArrayIsArray(args)) {
    throw new TypeError(`${server}.${tool}(): the arguments are one object, for example {"name": value}`);
  }
  const { timeout, signal } = checkOptions(options);
  if (signal?.aborted) throw signal.reason;
  const callId = nextCallId++;
  const pending = op_mcpx_tool_call(server, tool, byWireName, render(args), timeout, callId);
  let onAbort;
  if (signal !== undefined) {
    onAbort = () => op_mcpx_tool_cancel(callId);
    signal.addEventListener("abort", onAbort, { once: true });
  }
  let reply;
  try {
    reply = await pending;
  } catch (failure) {
    if (signal?.aborted) throw signal.reason;
    if (primordials.ObjectPrototypeIsPrototypeOf(ToolFailure.prototype, failure)) {
      throw new ToolError(failure.message, { server: failure.server, tool: failure.tool, code: failure.code });
    }
    throw failure;
  } finally {
    if (signal !== undefined) signal.removeEventListener("abort", onAbort);
  }
  const raw = JSONParse(reply[2]);
  if (whole) return raw;
  if (raw.isError === true) {
    throw new ToolError(errorMessage(reply[0], reply[1], raw), { server: reply[0], tool: reply[1], raw });
  }
  return valueOf(raw);
}

// The function that stands for one tool. `tool.raw(args)` resolves with the whole result and does not throw on `isError`.
function toolFunction(namespace, ident) {
  const fn = (args, options) => invoke(namespace, ident, false, args, options, false);
  ObjectDefineProperty(fn, "name", { __proto__: null, value: `${namespace}.${ident}`, configurable: true });
  fn.raw = (args, options) => invoke(namespace, ident, false, args, options, true);
  return fn;
}

// The table of a namespace: {tools: [...], collisions: [...]}; null while its server has not been asked.
function tableOf(namespace) {
  const text = op_mcpx_tools(namespace);
  return text === null ? null : JSONParse(text);
}

function collisionMessage(collision) {
  return `${ArrayPrototypeJoin(ArrayPrototypeMap(collision.names, (name) => `"${name}"`), " and ")} share the name ` +
    `${collision.ident}; reach each with call(server, tool, args)`;
}

function namespaceProxy(namespace) {
  const functions = new SafeMap();
  const identifiers = () => {
    const table = tableOf(namespace);
    return table === null ? [] : ArrayPrototypeMap(table.tools, (tool) => tool.ident);
  };
  const lookUp = (name) => {
    let fn = functions.get(name);
    if (fn === undefined) {
      const table = tableOf(namespace);
      if (table !== null) {
        for (const collision of new SafeArrayIterator(table.collisions)) {
          if (collision.ident === name) throw new ReferenceError(`${namespace}.${name}: ${collisionMessage(collision)}`);
        }
      }
      fn = toolFunction(namespace, name);
      functions.set(name, fn);
    }
    return fn;
  };
  // The target stays extensible: a proxy may only report keys that a frozen target has.
  return new Proxy({ __proto__: null, [SymbolToStringTag]: `mcpx namespace ${namespace}` }, {
    __proto__: null,
    get(target, name) {
      if (typeof name === "symbol") return target[name];
      // `await namespace` and JSON.stringify(namespace) must not call a tool.
      if (name === "then" || name === "toJSON") return undefined;
      return lookUp(name);
    },
    has(_target, name) {
      return primordials.ArrayPrototypeIncludes(identifiers(), name);
    },
    ownKeys(target) {
      const keys = identifiers();
      for (const key of new SafeArrayIterator(primordials.ReflectOwnKeys(target))) ArrayPrototypePush(keys, key);
      return keys;
    },
    getOwnPropertyDescriptor(target, name) {
      if (typeof name === "symbol") return primordials.ReflectGetOwnPropertyDescriptor(target, name);
      return { __proto__: null, value: lookUp(name), enumerable: true, configurable: true, writable: false };
    },
    set(_target, name) {
      throw new TypeError(`${namespace}.${String(name)} cannot be assigned: a namespace belongs to its server`);
    },
    defineProperty: () => false,
    deleteProperty: () => false,
    preventExtensions: () => false,
  });
}

function call(server, tool, args, options) {
  if (typeof server !== "string" || typeof tool !== "string") {
    throw new TypeError("call(server, tool, args): server and tool are strings, as the configuration and the server name them");
  }
  return invoke(server, tool, true, args, options, false);
}

// Ranked discovery over the tools already known: [{name: "ns.tool", description, score}].
function search(query, limit = 20) {
  if (typeof query !== "string") throw new TypeError("search(query): the query is a string");
  const most = NumberIsFinite(limit) && limit >= 1 ? MathMin(MathTrunc(limit), 1000) : 20;
  return JSONParse(op_mcpx_search(query, most));
}

// What is known of one tool: {name, description, inputSchema, outputSchema?}; throws when nothing is.
function describe(name) {
  const dot = typeof name === "string" ? StringPrototypeIndexOf(name, ".") : -1;
  if (dot < 1) throw new TypeError('describe("namespace.tool"): give both names with a dot between them');
  const namespace = StringPrototypeSlice(name, 0, dot), ident = StringPrototypeSlice(name, dot + 1);
  const table = tableOf(namespace);
  for (const tool of new SafeArrayIterator(table?.tools ?? [])) {
    if (tool.ident === ident || tool.name === ident) {
      const { ident: _, ...known } = tool;
      return { ...known, name: `${namespace}.${tool.ident}`, tool: tool.name };
    }
  }
  throw new ToolError(
    table === null
      ? `nothing is known of ${namespace} yet: its server has not been asked, or there is no such namespace; call one of its tools first`
      : `${namespace} has no tool ${ident}; it has ${ArrayPrototypeJoin(ArrayPrototypeMap(table.tools, (tool) => tool.ident), ", ")}`,
    { code: "not_found" },
  );
}

// Defines the namespaces of this run on `global` and on the object `tools`, each made at its first use.
function installNamespaces(global) {
  const tools = { __proto__: null };
  for (const entry of new SafeArrayIterator(JSONParse(op_mcpx_namespaces()))) {
    let made;
    const descriptor = {
      __proto__: null,
      configurable: true,
      enumerable: true,
      get: () => {
        if (entry.clash !== undefined) throw new ReferenceError(`${entry.ident}: ${entry.clash}`);
        return made ??= namespaceProxy(entry.ident);
      },
      set(value) {
        ObjectDefineProperty(this, entry.ident, { __proto__: null, value, configurable: true, enumerable: true, writable: true });
      },
    };
    ObjectDefineProperty(tools, entry.ident, descriptor);
    ObjectDefineProperty(global, entry.ident, descriptor);
  }
  return ObjectFreeze(tools);
}

function notYet(what) {
  return () => {
    throw new ToolError(`${what}() is not supported yet`, { code: "unsupported" });
  };
}
const readResource = notYet("readResource"), listResources = notYet("listResources"), getPrompt = notYet("getPrompt");

export { call, describe, getPrompt, installNamespaces, listResources, readResource, search, ToolError };
