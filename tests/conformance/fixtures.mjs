// The tools, prompts and resources that the official MCP conformance suite expects a server to have, as an upstream
// server on standard input and output. Toolyard passes them on under their own names, so that the suite exercises both
// of its sides at once. Speaks revision 2026-07-28 and needs nothing but Node.
import { createInterface } from 'node:readline';

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';
const SERVER = { name: 'conformance-fixtures', version: '1.0.0' };

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n');
const text = (words) => ({ content: [{ type: 'text', text: words }] });
const object = (properties = {}, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const form = (message, properties, required = Object.keys(properties)) => ({
  method: 'elicitation/create',
  params: { mode: 'form', message, requestedSchema: { type: 'object', properties, required } },
});
const sample = (words, maxTokens) => ({
  method: 'sampling/createMessage',
  params: { messages: [{ role: 'user', content: { type: 'text', text: words } }], maxTokens },
});
const roots = { method: 'roots/list', params: {} };
const string = { type: 'string' };

class Refusal extends Error {
  constructor(code, message, data) {
    super(message);
    Object.assign(this, { code, data });
  }
}

// Answers given so far, or questions still open.
const ask = (call, questions, requestState) => {
  const given = call.inputResponses ?? {};
  const open = Object.keys(questions).filter((key) => !given[key]);
  if (open.length === 0) return given;
  const inputRequests = Object.fromEntries(open.map((key) => [key, questions[key]]));
  throw { questions: { resultType: 'input_required', inputRequests, ...(requestState && { requestState }) } };
};

const can = (call) => call._meta?.['io.modelcontextprotocol/clientCapabilities'] ?? {};
const need = (call, capability) => {
  if (!can(call)[capability]) {
    throw new Refusal(-32021, `this needs a client with ${capability}`, { requiredCapabilities: { [capability]: {} } });
  }
};

const schema2020 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: { $anchor: 'addressDef', type: 'object', properties: { street: string, city: string } },
  },
  properties: {
    name: string,
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: string,
    email: string,
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

const enums = {
  untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
  titledSingle: {
    type: 'string',
    oneOf: ['First', 'Second', 'Third'].map((name, at) => ({ const: `value${at + 1}`, title: `${name} Option` })),
  },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
  titledMulti: {
    type: 'array',
    items: { anyOf: ['First', 'Second', 'Third'].map((name, at) => ({ const: `value${at + 1}`, title: `${name} Choice` })) },
  },
};

const defaults = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
};

const ended = (answer) => `Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`;

// name: [description, input schema, run]
const tools = {
  test_simple_text: ['Answers with text.', object(), () => text('This is a simple text response for testing.')],
  test_image_content: ['Answers with an image.', object(), () => ({ content: [{ type: 'image', data: PNG, mimeType: 'image/png' }] })],
  test_audio_content: ['Answers with sound.', object(), () => ({ content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }] })],
  test_embedded_resource: ['Answers with a resource.', object(), () => ({
    content: [{ type: 'resource', resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' } }],
  })],
  test_multiple_content_types: ['Answers with several things.', object(), () => ({
    content: [
      { type: 'text', text: 'Multiple content types test:' },
      { type: 'image', data: PNG, mimeType: 'image/png' },
      { type: 'resource', resource: { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: '{"test":"data","value":123}' } },
    ],
  })],
  test_tool_with_logging: ['Logs while it works.', object(), async () => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      say({ method: 'notifications/message', params: { level: 'info', data } });
      await pause(50);
    }
    return text('Logged three times.');
  }],
  test_logging_tool: ['Logs once.', object(), () => {
    say({ method: 'notifications/message', params: { level: 'info', data: 'Logged' } });
    return text('Logged once.');
  }],
  test_tool_with_progress: ['Tells how far it is.', object(), async (call) => {
    const progressToken = call._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progressToken !== undefined) say({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
      await pause(50);
    }
    return text('Went all the way.');
  }],
  test_error_handling: ['Fails.', object(), () => ({ isError: true, ...text('This tool intentionally returns an error for testing') })],
  test_missing_capability: ['Needs a client that samples.', object(), (call) => {
    need(call, 'sampling');
    return text('The client can sample.');
  }],
  test_sampling: ['Asks the client\'s model.', object({ prompt: string }), (call) => {
    need(call, 'sampling');
    const { answer } = ask(call, { answer: sample(call.arguments.prompt, 100) });
    return text(`LLM response: ${answer.content?.text ?? JSON.stringify(answer.content)}`);
  }],
  test_elicitation: ['Asks the person.', object({ message: string }), (call) => {
    need(call, 'elicitation');
    const fields = { username: { ...string, description: "User's response" }, email: { ...string, description: "User's email address" } };
    const { answer } = ask(call, { answer: form(call.arguments.message, fields) });
    return text(`User response: action: ${answer.action}, content: ${JSON.stringify(answer.content ?? {})}`);
  }],
  test_elicitation_sep1034_defaults: ['Asks with default values.', object(), (call) => {
    need(call, 'elicitation');
    return text(ended(ask(call, { answer: form('Please review', defaults, []) }).answer));
  }],
  test_elicitation_sep1330_enums: ['Asks with choices.', object(), (call) => {
    need(call, 'elicitation');
    return text(ended(ask(call, { answer: form('Please choose', enums, []) }).answer));
  }],
  test_streaming_elicitation: ['Asks, and tells how far it is.', object(), (call) => {
    need(call, 'elicitation');
    return text(ended(ask(call, { answer: form('Go on?', { ok: { type: 'boolean' } }) }).answer));
  }],
  json_schema_2020_12_tool: ['Tool with JSON Schema 2020-12 features', schema2020, () => text('ok')],
  test_x_mcp_header: ['Mirrors an argument into a header.', object({ region: { ...string, 'x-mcp-header': 'Region' } }), (call) => text(`region ${call.arguments.region}`)],
  test_input_required_result_elicitation: ['Asks for a name.', object(), (call) => {
    const { user_name } = ask(call, { user_name: form('What is your name?', { name: string }) });
    return text(`Hello, ${user_name.content?.name}!`);
  }],
  test_input_required_result_sampling: ['Asks for a capital.', object(), (call) => {
    const { capital_question } = ask(call, { capital_question: sample('What is the capital of France?', 100) });
    return text(`The model says: ${capital_question.content?.text}`);
  }],
  test_input_required_result_list_roots: ['Asks for roots.', object(), (call) => {
    const { client_roots } = ask(call, { client_roots: roots });
    return text(`Roots: ${(client_roots.roots ?? []).map((root) => root.uri).join(', ')}`);
  }],
  test_input_required_result_request_state: ['Asks and remembers.', object(), (call) => {
    ask(call, { confirm: form('Please confirm', { ok: { type: 'boolean' } }) }, 'fixture-state');
    return text(call.requestState === 'fixture-state' ? 'state-ok' : 'state-lost');
  }],
  test_input_required_result_multiple_inputs: ['Asks three things.', object(), (call) => {
    const questions = { user_name: form('What is your name?', { name: string }), greeting: sample('Generate a greeting', 50), client_roots: roots };
    ask(call, questions, 'fixture-state');
    return text('All three are answered.');
  }],
  test_input_required_result_multi_round: ['Asks twice.', object(), (call) => {
    if (call.requestState === 'round-2') {
      const { step2 } = ask(call, { step2: form('Step 2: What is your favorite color?', { color: string }) }, 'round-2');
      return text(`Color: ${step2.content?.color}`);
    }
    ask(call, { step1: form('Step 1: What is your name?', { name: string }) }, 'round-1');
    return ask({}, { step2: form('Step 2: What is your favorite color?', { color: string }) }, 'round-2');
  }],
  test_input_required_result_tampered_state: ['Asks with a state that must not change.', object(), (call) => {
    ask(call, { confirm: form('Please confirm', { ok: { type: 'boolean' } }) }, 'fixture-state');
    return text('done');
  }],
  test_input_required_result_capabilities: ['Asks what the client can answer.', object(), (call) => {
    const questions = {};
    if (can(call).elicitation) questions.user_name = form('What is your name?', { name: string });
    if (can(call).sampling) questions.greeting = sample('Generate a greeting', 50);
    if (can(call).roots) questions.client_roots = roots;
    ask(call, questions);
    return text('All that can be answered is.');
  }],
};

// Lists that change, and a word about it to whoever listens.
let listening;
const changed = (what) => say({ method: `notifications/${what}/list_changed`, params: { _meta: { 'io.modelcontextprotocol/subscriptionId': listening } } });
let changes = 0;
tools.test_trigger_tool_change = ['Adds a tool.', object(), () => {
  tools[`test_added_${(changes += 1)}`] = ['Was added.', object(), () => text('added')];
  changed('tools');
  return text('A tool was added.');
}];
tools.test_trigger_prompt_change = ['Adds a prompt.', object(), () => {
  prompts[`test_added_${(changes += 1)}`] = ['Was added.', [], () => [plain('added')]];
  changed('prompts');
  return text('A prompt was added.');
}];

const message = (content) => ({ role: 'user', content });
const plain = (words) => message({ type: 'text', text: words });
const argument = (name, description) => ({ name, description, required: true });
const prompts = {
  test_simple_prompt: ['A simple prompt.', [], () => [plain('This is a simple prompt for testing.')]],
  test_prompt_with_arguments: ['A prompt with arguments.', [argument('arg1', 'First test argument'), argument('arg2', 'Second test argument')],
    ({ arguments: a }) => [plain(`Prompt with arguments: arg1='${a.arg1}', arg2='${a.arg2}'`)]],
  test_prompt_with_embedded_resource: ['A prompt with a resource.', [argument('resourceUri', 'URI of the resource to embed')],
    ({ arguments: a }) => [
      message({ type: 'resource', resource: { uri: a.resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' } }),
      plain('Please process the embedded resource above.'),
    ]],
  test_prompt_with_image: ['A prompt with an image.', [], () => [message({ type: 'image', data: PNG, mimeType: 'image/png' }), plain('Please analyze the image above.')]],
  test_input_required_result_prompt: ['A prompt that asks.', [], (call) => {
    const { user_context } = ask(call, { user_context: form('What context should the prompt use?', { context: string }) });
    return [plain(`Context: ${user_context.content?.context}`)];
  }],
};

const resources = [
  { uri: 'test://static-text', name: 'static-text', description: 'Text that stays.', mimeType: 'text/plain' },
  { uri: 'test://static-binary', name: 'static-binary', description: 'An image that stays.', mimeType: 'image/png' },
  { uri: 'test://watched-resource', name: 'watched', description: 'One to watch.', mimeType: 'text/plain' },
];

const read = (uri) => {
  if (uri === 'test://static-text') return { uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' };
  if (uri === 'test://static-binary') return { uri, mimeType: 'image/png', blob: PNG };
  if (uri === 'test://watched-resource') return { uri, mimeType: 'text/plain', text: 'Watched.' };
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (id) return { uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) };
  throw new Refusal(-32602, 'Resource not found', { uri });
};

const kept = { ttlMs: 0, cacheScope: 'private' };
const methods = {
  'server/discover': () => ({ supportedVersions: ['2026-07-28'], capabilities: { tools: { listChanged: true }, prompts: { listChanged: true }, resources: {}, completions: {}, logging: {} }, ...kept }),
  'tools/list': () => ({
    tools: Object.entries(tools).map(([name, [description, inputSchema]]) => ({ name, description, inputSchema, annotations: { readOnlyHint: true } })),
    ...kept,
  }),
  'tools/call': async (params) => {
    const tool = tools[params.name];
    if (!tool) throw new Refusal(-32602, `Unknown tool: ${params.name}`);
    return tool[2]({ arguments: {}, ...params });
  },
  'prompts/list': () => ({ prompts: Object.entries(prompts).map(([name, [description, args]]) => ({ name, description, arguments: args })), ...kept }),
  'prompts/get': (params) => {
    const prompt = prompts[params.name];
    if (!prompt) throw new Refusal(-32602, `Unknown prompt: ${params.name}`);
    return { messages: prompt[2]({ arguments: {}, ...params }) };
  },
  'resources/list': () => ({ resources, ...kept }),
  'resources/templates/list': () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', description: 'Data by id.', mimeType: 'application/json' }],
    ...kept,
  }),
  'resources/read': (params) => ({ contents: [read(params.uri)], ...kept }),
  'completion/complete': (params) => {
    const all = ['paris', 'park', 'party'].filter((word) => word.startsWith(params.argument?.value ?? ''));
    return { completion: { values: all, total: all.length, hasMore: false } };
  },
};

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params = {} } = JSON.parse(line);
  if (method === 'subscriptions/listen') {
    listening = id;
    return say({ method: 'notifications/subscriptions/acknowledged', params: { _meta: { 'io.modelcontextprotocol/subscriptionId': id }, notifications: params.notifications } });
  }
  if (id === undefined || method === undefined) return;
  try {
    if (!methods[method]) throw new Refusal(-32601, 'Method not found');
    const result = await methods[method](params);
    say({ id, result: { resultType: 'complete', ...result, _meta: { 'io.modelcontextprotocol/serverInfo': SERVER } } });
  } catch (problem) {
    if (problem.questions) return say({ id, result: problem.questions });
    say({ id, error: { code: problem.code ?? -32603, message: problem.message, data: problem.data } });
  }
});
