// `emit` and `log`: what a script tells its caller while it runs.

import { core, primordials } from "ext:core/mod.js";
import { op_mcpx_emit, op_mcpx_log } from "ext:core/ops";
import { isErrorLike, render } from "ext:mcpx/10_value.js";
const { ArrayIsArray, ArrayPrototypePush, ObjectAssign, ObjectFreeze, String, TypeError } = primordials;

// One structured value to the caller, at once. `undefined` is sent as null: the caller learns that something was emitted.
function emit(value) {
  op_mcpx_emit(render(value) ?? "null");
}

const LEVELS = { __proto__: null, debug: 0, info: 1, warn: 2, error: 3 };

function isAttributes(value) {
  return typeof value === "object" && value !== null && !core.isProxy(value) && !ArrayIsArray(value) && !isErrorLike(value);
}

function write(level, bound, message, rest) {
  const attrs = { __proto__: null };
  ObjectAssign(attrs, bound);
  const others = [];
  let seen = false;
  for (let i = 0; i < rest.length; i++) {
    const value = rest[i];
    if (!seen && isAttributes(value)) {
      ObjectAssign(attrs, value);
      seen = true;
    } else if (isErrorLike(value)) {
      attrs.error = value;
    } else {
      ArrayPrototypePush(others, value);
    }
  }
  if (others.length > 0) attrs.args = others;
  const text = typeof message === "string" ? message : render(message) ?? String(message);
  const json = render(attrs);
  op_mcpx_log(level, text, json === "{}" ? null : json);
}

// A logger: callable for level info, with one method a level and `with` for attributes that every record carries.
function logger(bound) {
  const log = (message, ...rest) => write(LEVELS.info, bound, message, rest);
  log.debug = (message, ...rest) => write(LEVELS.debug, bound, message, rest);
  log.info = (message, ...rest) => write(LEVELS.info, bound, message, rest);
  log.warn = (message, ...rest) => write(LEVELS.warn, bound, message, rest);
  log.error = (message, ...rest) => write(LEVELS.error, bound, message, rest);
  log.with = (attrs) => {
    if (!isAttributes(attrs)) throw new TypeError("log.with(): attributes must be an object");
    return logger(ObjectAssign({ __proto__: null }, bound, attrs));
  };
  return ObjectFreeze(log);
}

const log = logger({ __proto__: null });

export { emit, log };
