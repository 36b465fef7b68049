// Entry point of the extension: the globals of SPEC 4.2 and the controls by which the host runs a script.
//
// This module is evaluated when the snapshot is made. The host takes the controls off the global object once, after it has
// bootstrapped an isolate and before any script is in it; nothing of them is left for scripts to find.

import { core, internals, primordials } from "ext:core/mod.js";
import { op_bootstrap_args, op_mcpx_failing, op_mcpx_result } from "ext:core/ops";
import { render, TooLarge } from "ext:mcpx/10_value.js";
import { emit, log } from "ext:mcpx/20_output.js";
import { artifact, McpxError, input } from "ext:mcpx/30_artifact.js";
import {
  call,
  describe,
  getPrompt,
  installNamespaces,
  listResources,
  readResource,
  search,
  ToolError,
} from "ext:mcpx/40_tools.js";
const {
  ArrayPrototypeFilter,
  ArrayPrototypeJoin,
  Error,
  ObjectAssign,
  ObjectDefineProperties,
  ObjectDefineProperty,
  ObjectKeys,
  ObjectPrototypeIsPrototypeOf,
  SafeArrayIterator,
} = primordials;

const performance = core.loadExtScript("ext:deno_web/15_performance.js");

// A failure whose kind we know ourselves.
class RunError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

// The error kind (SPEC 14) of what a script threw, judged by its class, never by its text.
function kindOf(thrown) {
  const is = (constructor) => ObjectPrototypeIsPrototypeOf(constructor.prototype, thrown);
  try {
    if (is(ToolError) || is(McpxError)) return thrown.code ?? "script_error";
    if (is(RunError)) return thrown.kind;
    if (is(TooLarge)) return "too_large";
    if (is(globalThis.Deno.errors.NotCapable)) return "permission_denied";
  } catch {
    // A script can make even these look-ups throw; then it is simply its own error.
  }
  return "script_error";
}

const visible = (value) => ({ __proto__: null, value, configurable: true, enumerable: false, writable: true });

let controller;
let aborted;

// Defines what is the same in every run. Called once, before the job is known.
function prepare() {
  const global = globalThis;
  // The first lazily loaded source makes deno_core rebind its ops, which must not meet a termination: it would panic, and a panic
  // in an op ends the daemon. Here nobody terminates yet. (The smallest source will do.)
  core.loadExtScript("ext:deno_node/_process/exiting.ts");
  wrapCommand(global.Deno);
  ObjectDefineProperties(global, {
    __proto__: null,
    artifact: visible(artifact),
    call: visible(call),
    describe: visible(describe),
    emit: visible(emit),
    getPrompt: visible(getPrompt),
    input: visible(input),
    listResources: visible(listResources),
    log: visible(log),
    readResource: visible(readResource),
    search: visible(search),
    ToolError: visible(ToolError),
  });
  ObjectDefineProperty(global, "signal", {
    __proto__: null,
    configurable: true,
    enumerable: false,
    get() {
      if (controller === undefined) {
        controller = new global.AbortController();
        if (aborted !== undefined) controller.abort(aborted);
      }
      return controller.signal;
    },
  });
}

// A child process gets the run's environment, not the process's. (node:child_process passes `process.env` by itself.)
function wrapCommand(deno) {
  let made;
  ObjectDefineProperty(deno, "Command", {
    __proto__: null,
    configurable: true,
    enumerable: true,
    get: () => made ??= commandClass(lazyProcess().Command),
  });
}

const lazyProcess = () => core.loadExtScript("ext:deno_process/40_process.js");

function commandClass(Original) {
  return class Command extends Original {
    constructor(command, options = { __proto__: null }) {
      const env = { __proto__: null };
      if (options?.clearEnv !== true) ObjectAssign(env, globalThis.Deno.env.toObject());
      super(command, { ...options, clearEnv: true, env: ObjectAssign(env, options?.env) });
    }
  };
}

// Fires `signal`, for a run that is being stopped while its loop is idle. Who listens has a few milliseconds.
function abort(message) {
  aborted = new RunError("cancelled", message);
  controller?.abort(aborted);
}

// Gives the isolate to one run: called once, when the job has arrived and everything native of it is in place.
function begin() {
  const global = globalThis;
  const args = op_bootstrap_args();
  ObjectDefineProperty(global, "args", visible(args));
  ObjectDefineProperty(global, "tools", visible(installNamespaces(global)));
  // Bootstrapping happened when the isolate was made; node's part of it still waits for its first use and takes the arguments
  // from here. `performance.now()` starts at the run, not at the birth of the isolate.
  if (internals.__nodeBootstrapArgs !== undefined) internals.__nodeBootstrapArgs.denoArgs = args;
  // `Deno.args` was read, and remembered, by the bootstrap.
  ObjectDefineProperty(global.Deno, "args", { __proto__: null, value: args, configurable: true, enumerable: true });
  performance.setTimeOrigin();
}

function exportedFunctions(namespace) {
  const names = ArrayPrototypeFilter(ObjectKeys(namespace), (name) => typeof namespace[name] === "function");
  return names.length === 0 ? "it exports no function" : `it exports ${ArrayPrototypeJoin(names, ", ")}`;
}

// Calls the entry of an evaluated module and reports its value. `exported` is the name of --export, or null for the default.
async function settle(namespace, exported) {
  try {
    const args = globalThis.Deno.args;
    let value;
    if (exported !== null) {
      const entry = namespace[exported];
      if (typeof entry !== "function") {
        throw new RunError("not_found", `no exported function "${exported}": ${exportedFunctions(namespace)}`);
      }
      value = await entry(...new SafeArrayIterator(args));
    } else {
      const entry = namespace.default;
      value = typeof entry === "function" ? await entry(args) : await entry;
    }
    const json = render(value);
    if (json !== undefined) op_mcpx_result(json);
  } catch (thrown) {
    op_mcpx_failing(kindOf(thrown));
    throw thrown;
  }
}

ObjectDefineProperty(globalThis, "__mcpx", {
  __proto__: null,
  configurable: true,
  enumerable: false,
  value: { __proto__: null, abort, begin, prepare, settle },
});
