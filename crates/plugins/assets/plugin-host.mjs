// Runs a plugin written for OpenClaw, unmodified: gives it the `api` it registers its tools and hooks with, and speaks
// Toolyard's line protocol (docs/guide/plugins.md) on standard input and output. What it registers beside tools, hooks and
// services has no place here and is reported, not run.
import { createInterface } from 'node:readline';
import { createRequire, register as registerLoader } from 'node:module';
import Module from 'node:module';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join, resolve, isAbsolute } from 'node:path';
import { pathToFileURL } from 'node:url';

const MAX_SCANNED_FILES = 2000;
const HOOK_EVENTS = ['before_tool_call'];

// Standard output belongs to the protocol; what a plugin prints goes to standard error.
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
const send = (message) => write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n');
const log = (level) => (...words) => console.error(`[${level}]`, ...words);
for (const level of ['log', 'info', 'debug']) console[level] = (...words) => console.error(...words);
const logger = { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error'), child: () => logger, isVerbose: () => false };

class ToolInputError extends Error {
  constructor(message) {
    super(message);
    this.name = 'ToolInputError';
    this.status = 400;
  }
}

const jsonResult = (details) => ({ content: [{ type: 'text', text: JSON.stringify(details, null, 2) }], details });
const textResult = (text, details = {}) => ({ content: [{ type: 'text', text }], details });
const readParam = (kind, check) => (params, key, options = {}) => {
  const value = params?.[key];
  if (value === undefined || value === null || value === '') {
    if (options.required) throw new ToolInputError(`${options.label ?? key} required`);
    return undefined;
  }
  return check(value, key, kind);
};
const asString = (value) => (typeof value === 'string' ? value.trim() : String(value));
const asNumber = (value, key) => {
  const number = typeof value === 'number' ? value : Number(value);
  if (!Number.isFinite(number)) throw new ToolInputError(`${key} must be a number`);
  return number;
};

// The parts of `openclaw/plugin-sdk` that a tool can need. Anything else a plugin imports from there is a function that
// says so when it is called.
const sdk = {
  definePluginEntry: (entry) => entry,
  defineToolPlugin: (options) => ({
    ...options,
    register(api) {
      const define = (tool) => tool;
      const tools = typeof options.tools === 'function' ? options.tools(define, api) : (options.tools ?? []);
      for (const tool of tools) api.registerTool(tool, { name: tool.name, optional: tool.optional });
    },
  }),
  emptyPluginConfigSchema: () => ({ type: 'object', additionalProperties: false, properties: {} }),
  buildPluginConfigSchema: (schema) => schema,
  jsonResult,
  textResult,
  ToolInputError,
  readStringParam: readParam('string', asString),
  readNumberParam: readParam('number', asNumber),
  readStringArrayParam: readParam('array', (value) => (Array.isArray(value) ? value.map(String) : [String(value)])),
  stringEnum: (values, options = {}) => ({ type: 'string', enum: [...values], ...options }),
  optionalStringEnum: (values, options = {}) => ({ type: 'string', enum: [...values], ...options }),
};
globalThis.__toolyardPluginSdk = sdk;
globalThis.__toolyardUnsupported = (name) => {
  const refuse = () => {
    throw new Error(`openclaw/plugin-sdk: ${name} is not available in Toolyard's plugin host`);
  };
  return new Proxy(function unsupported() {}, { apply: refuse, construct: refuse });
};

// A module can only be linked if it has every name that is imported from it, so those are looked up first.
function importedNames(folder) {
  const names = new Map();
  const pattern = /import\s+(?:type\s+)?(?:[\w$]+\s*,\s*)?(?:\{([^}]*)\}|\*\s+as\s+[\w$]+|[\w$]+)\s*from\s*["'](openclaw(?:\/[^"']*)?)["']/g;
  const waiting = [folder];
  let files = 0;
  while (waiting.length > 0 && files < MAX_SCANNED_FILES) {
    const place = waiting.pop();
    for (const entry of readdirSync(place, { withFileTypes: true })) {
      const path = join(place, entry.name);
      if (entry.isDirectory() && entry.name !== 'node_modules' && !entry.name.startsWith('.')) waiting.push(path);
      if (!entry.isFile() || !/\.[cm]?[jt]s$/.test(entry.name) || /\.d\.[cm]?ts$/.test(entry.name)) continue;
      files += 1;
      for (const [, list, from] of readFileSync(path, 'utf8').matchAll(pattern)) {
        const known = names.get(from) ?? new Set();
        for (const part of (list ?? '').split(',')) {
          const name = part.trim().replace(/^type\s+/, '').split(/\s+as\s+/)[0].trim();
          if (/^[\w$]+$/.test(name) && name !== 'default') known.add(name);
        }
        names.set(from, known);
      }
    }
  }
  return names;
}

function provideSdk(folder) {
  const names = new Set(Object.keys(sdk));
  for (const known of importedNames(folder).values()) for (const name of known) names.add(name);
  const lines = [...names].map((name) => `export const ${name} = sdk[${JSON.stringify(name)}] ?? unsupported(${JSON.stringify(name)});`);
  const source = `const sdk = globalThis.__toolyardPluginSdk; const unsupported = globalThis.__toolyardUnsupported;\n${lines.join('\n')}\nexport default sdk;\n`;
  const stand = 'data:text/javascript;base64,' + Buffer.from(source).toString('base64');
  // Loader hooks live in a thread of their own and know nothing but what is written here.
  const loader = `
    const stand = ${JSON.stringify(stand)};
    export async function resolve(specifier, context, next) {
      if (specifier === 'openclaw' || specifier.startsWith('openclaw/')) return { url: stand, shortCircuit: true };
      try {
        return await next(specifier, context);
      } catch (problem) {
        // TypeScript is imported by the name it would have had as JavaScript.
        if (/^\\.{1,2}\\//.test(specifier) && specifier.endsWith('.js')) return next(specifier.slice(0, -3) + '.ts', context);
        throw problem;
      }
    }`;
  registerLoader('data:text/javascript,' + encodeURIComponent(loader));
  const load = Module._load;
  const proxy = new Proxy(sdk, { get: (target, name) => target[name] ?? globalThis.__toolyardUnsupported(String(name)) });
  Module._load = function (request, ...rest) {
    if (request === 'openclaw' || request.startsWith('openclaw/')) return proxy;
    return load.call(this, request, ...rest);
  };
}

const tools = new Map();
const hooks = [];
const services = [];
const unsupported = new Set();
const problems = [];
const running = new Map();
let entry;

function addTool(tool, options = {}) {
  if (!tool) return;
  if (Array.isArray(tool)) return tool.forEach((one) => addTool(one, options));
  const run = tool.execute ?? tool.handler ?? tool.run;
  if (typeof tool.name !== 'string' || typeof run !== 'function') {
    problems.push(`a tool without ${typeof tool.name === 'string' ? `execute: ${tool.name}` : 'a name'} was registered`);
    return;
  }
  tools.set(tool.name, { tool, run: run.bind(tool), optional: options.optional === true || tool.optional === true });
}

function makeApi(start) {
  const config = { plugins: { entries: { [start.id]: { enabled: true, config: start.config } } } };
  const context = { config, runtimeConfig: config, getRuntimeConfig: () => config, workspaceDir: start.dataDir, agentDir: start.dataDir, agentId: 'main', sessionKey: 'agent:main:main' };
  const refuse = (what) => new Proxy(function () {}, {
    get: (_, name) => (typeof name === 'symbol' || name === 'then' ? undefined : refuse(`${what}.${String(name)}`)),
    apply: () => {
      throw new Error(`${what} is not available in Toolyard's plugin host`);
    },
  });
  const api = {
    id: start.id,
    name: start.name ?? start.id,
    version: start.version,
    description: start.description,
    source: start.folder,
    rootDir: start.folder,
    registrationMode: 'full',
    config,
    pluginConfig: start.config,
    logger,
    runtime: { version: '2026.9.6', config: { loadConfig: () => config, current: () => config }, logging: { getChildLogger: () => logger }, state: { resolveStateDir: () => start.dataDir } },
    resolvePath: (path) => (isAbsolute(path) ? path : resolve(start.folder, path.replace(/^~\//, `${start.dataDir}/`))),
    registerTool: (tool, options) => {
      if (typeof tool !== 'function') return addTool(tool, options);
      try {
        addTool(tool(context), options);
      } catch (problem) {
        problems.push(`a tool could not be made: ${problem.message}`);
      }
    },
    on: (event, handler, options = {}) => addHook(event, handler, options),
    registerHook: (events, handler, options = {}) => [events].flat().forEach((event) => addHook(event, handler, options)),
    registerService: (service) => services.push(service),
  };
  api.runtime = new Proxy(api.runtime, { get: (target, name) => (name in target || typeof name === 'symbol' ? target[name] : refuse(`api.runtime.${String(name)}`)) });
  return new Proxy(api, {
    get(target, name) {
      if (name in target || typeof name === 'symbol') return target[name];
      if (/^register[A-Z]/.test(name)) {
        return () => {
          unsupported.add(`api.${name}`);
        };
      }
      return undefined;
    },
  });
}

function addHook(event, handler, options) {
  if (typeof handler !== 'function') return;
  if (!HOOK_EVENTS.includes(event)) return void unsupported.add(`hook ${event}`);
  const matcher = [options.matcher ?? []].flat().filter((name) => typeof name === 'string');
  hooks.push({ event, handler, matcher, priority: Number(options.priority ?? 0), at: hooks.length });
  // The greater priority first; those alike in the order they came.
  hooks.sort((a, b) => b.priority - a.priority || a.at - b.at);
}

async function health() {
  const probe = entry?.health ?? entry?.onLoad;
  const notes = [...problems, ...[...unsupported].map((what) => `${what} is not supported by Toolyard`)];
  let found = { status: 'healthy', checks: [] };
  if (typeof probe === 'function') {
    try {
      found = { ...found, ...(await probe.call(entry)) };
    } catch (problem) {
      found = { status: 'unavailable', checks: [{ name: 'probe', status: 'unavailable', message: problem.message }] };
    }
  }
  if (found.status === 'healthy' && problems.length > 0) found.status = 'degraded';
  return { ...found, notes };
}

async function start(params) {
  const folder = resolve(params.folder);
  process.chdir(params.dataDir);
  provideSdk(folder);
  const api = makeApi({ ...params, folder });
  for (const extension of params.extensions) {
    const path = resolve(folder, extension);
    let module;
    if (path.endsWith('.cjs')) module = createRequire(pathToFileURL(path))(path);
    else module = await import(pathToFileURL(existsSync(path) ? path : path.replace(/\.ts$/, '.js')).href);
    entry = module.default ?? module;
    if (entry?.default?.register) entry = entry.default;
    const registering = typeof entry === 'function' ? entry : (entry.register ?? entry.activate ?? module.register);
    if (typeof registering !== 'function') throw new Error(`${extension} exports no register function`);
    await registering.call(entry, api);
  }
  for (const service of services) {
    try {
      await service.start?.({ config: api.config, logger, stateDir: params.dataDir, workspaceDir: params.dataDir });
    } catch (problem) {
      problems.push(`the service ${service.id ?? ''} did not start: ${problem.message}`);
    }
  }
  return {
    plugin: { id: params.id },
    tools: [...tools.values()].map(({ tool, optional }) => ({
      name: tool.name,
      label: tool.label,
      description: tool.description,
      parameters: tool.parameters ?? tool.inputSchema ?? { type: 'object' },
      optional,
    })),
    hooks: hooks.map(({ event, matcher }) => ({ event, matcher })),
    health: await health(),
  };
}

async function call(id, { tool: name, args, progressToken }) {
  const known = tools.get(name);
  if (!known) throw Object.assign(new Error(`there is no tool ${name}`), { code: -32602 });
  const stop = new AbortController();
  running.set(id, stop);
  let told = 0;
  const onUpdate = (partial) => {
    told += 1;
    const message = partial?.content?.find?.((part) => part.type === 'text')?.text ?? '';
    send({ method: 'notifications/progress', params: { progressToken, progress: told, message } });
  };
  try {
    const result = await known.run(`toolyard-${id}`, args ?? {}, stop.signal, onUpdate);
    return result ?? null;
  } finally {
    running.delete(id);
  }
}

// A block ends it; rewritten parameters hold until somebody wants approval, which freezes them.
async function beforeToolCall(call) {
  let params = call.params;
  let rewritten = false;
  let approval;
  for (const hook of hooks) {
    if (hook.event !== 'before_tool_call') continue;
    if (hook.matcher.length > 0 && !hook.matcher.includes(call.toolName)) continue;
    const context = { agentId: call.agentId, sessionKey: call.sessionKey, toolName: call.toolName, runId: call.runId };
    const verdict = await hook.handler({ toolName: call.toolName, params, runId: call.runId, toolCallId: call.toolCallId }, context);
    if (!verdict) continue;
    if (verdict.block) return { block: true, blockReason: verdict.blockReason };
    if (verdict.params && !approval) {
      params = { ...params, ...verdict.params };
      rewritten = true;
    }
    if (verdict.requireApproval && !approval) approval = verdict.requireApproval;
  }
  return { ...(rewritten && { params }), ...(approval && { requireApproval: approval }) };
}

const methods = {
  start: (_, params) => start(params),
  call,
  before_tool_call: (_, params) => beforeToolCall(params),
  health: () => health(),
};

process.on('unhandledRejection', (problem) => logger.error('a promise was rejected and nobody listened:', problem));
createInterface({ input: process.stdin })
  .on('line', async (line) => {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return;
    }
    if (message.method === 'notifications/cancelled') return void running.get(message.params?.requestId)?.abort();
    if (message.id === undefined) return;
    try {
      const method = methods[message.method];
      if (!method) throw Object.assign(new Error('Method not found'), { code: -32601 });
      send({ id: message.id, result: (await method(message.id, message.params)) ?? null });
    } catch (problem) {
      const code = problem?.code === -32601 || problem?.code === -32602 ? problem.code : problem?.name === 'ToolInputError' ? -32602 : -32603;
      send({ id: message.id, error: { code, message: String(problem?.message ?? problem) } });
    }
  })
  .on('close', () => process.exit(0));
