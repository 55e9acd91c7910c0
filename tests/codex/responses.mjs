// A Responses API on loopback that does as the prompt says: enough of its streaming for Codex, and no model behind it.
// A prompt that holds `CALL {"name":…,"input":…}` is answered with that call, and what comes back from the tool with a text
// that begins with `RESULT`. Anything else is answered with `OK`.
import http from 'node:http';

const texts = (content) => (typeof content === 'string' ? [content] : (content ?? []).map((part) => part.text ?? ''));

// The call that the last prompt wants, unless its result is there already.
const decide = (input) => {
  const last = input.at(-1);
  if (last?.type?.endsWith('_call_output')) {
    const said = typeof last.output === 'string' ? last.output : texts(last.output).join(' ') || JSON.stringify(last.output);
    return { text: `RESULT ${said}` };
  }
  const prompts = input.filter((item) => item.role === 'user').flatMap((item) => texts(item.content));
  const wanted = /CALL (\{.*\})/.exec(prompts.at(-1) ?? '')?.[1];
  return wanted ? { call: JSON.parse(wanted) } : { text: 'OK' };
};

const item = (count, { call, text }) => {
  if (text !== undefined) return { type: 'message', id: `msg_${count}`, role: 'assistant', content: [{ type: 'output_text', text }] };
  const named = { call_id: `call_${count}`, name: call.name };
  // A tool with a grammar of its own, such as apply_patch, takes text instead of JSON.
  if (typeof call.input === 'string') return { type: 'custom_tool_call', id: `ctc_${count}`, ...named, input: call.input };
  // Codex groups the tools of an MCP server in a namespace.
  const namespace = call.namespace ? { namespace: call.namespace } : {};
  return { type: 'function_call', id: `fc_${count}`, ...named, ...namespace, arguments: JSON.stringify(call.input) };
};

// Starts it. `requests` holds what Codex sent.
export const serve = () =>
  new Promise((started) => {
    const api = { requests: [] };
    let count = 0;
    const server = http.createServer((request, response) => {
      let body = '';
      request.on('data', (part) => (body += part));
      request.on('end', () => {
        const path = new URL(request.url, 'http://localhost').pathname;
        if (request.method !== 'POST' || !path.endsWith('/responses')) {
          response.writeHead(404, { 'content-type': 'application/json' });
          return response.end('{"error":{"message":"not found"}}');
        }
        const asked = JSON.parse(body || '{}');
        api.requests.push(asked);
        count += 1;
        const done = item(count, decide(asked.input ?? []));
        const event = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
        response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
        event('response.created', { response: { id: `resp_${count}` } });
        event('response.output_item.done', { output_index: 0, item: done });
        const usage = { input_tokens: 10, input_tokens_details: null, output_tokens: 5, output_tokens_details: null, total_tokens: 15 };
        event('response.completed', { response: { id: `resp_${count}`, usage } });
        return response.end();
      });
    });
    server.listen(0, '127.0.0.1', () => started(Object.assign(api, { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() })));
  });
