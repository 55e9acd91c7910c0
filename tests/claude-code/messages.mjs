// A Messages API on loopback that does as the prompt says: enough of its streaming for Claude Code, and no model behind it.
// A prompt with lines `CALL {"name":…,"input":…}` is answered with those tool uses, one after the other, and what comes
// back from the last of them with a text that begins with `RESULT`. Anything else is answered with `OK`.
import http from 'node:http';

const texts = (content) => (typeof content === 'string' ? [content] : (content ?? []).filter((part) => part.type === 'text').map((part) => part.text));

// The next tool use that the last prompt wants (each line of it that holds one is a call), or what the last one gave.
const decide = (messages) => {
  const results = (message) => (Array.isArray(message?.content) ? message.content.filter((part) => part.type === 'tool_result') : []);
  const prompt = messages.findLastIndex((message) => message.role === 'user' && results(message).length === 0);
  const wanted = texts(messages[prompt]?.content).flatMap((text) => [...text.matchAll(/CALL (\{.*\})/g)].map((found) => found[1]));
  const done = messages.slice(prompt + 1).flatMap(results);
  if (done.length < wanted.length) return { call: JSON.parse(wanted[done.length]) };
  if (done.length === 0) return { text: 'OK' };
  const said = results(messages.at(-1)).map((part) => `${part.is_error ? 'ERROR ' : ''}${texts(part.content).join(' ')}`).join('\n');
  return { text: `RESULT ${said}` };
};

const streamed = (response, message, block, deltas) => {
  const event = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  event('message_start', { message: { ...message, content: [], stop_reason: null } });
  event('content_block_start', { index: 0, content_block: block });
  event('ping', {});
  for (const delta of deltas) event('content_block_delta', { index: 0, delta });
  event('content_block_stop', { index: 0 });
  event('message_delta', { delta: { stop_reason: message.stop_reason, stop_sequence: null }, usage: { output_tokens: 5 } });
  event('message_stop', {});
  response.end();
};

// Starts it. A promise in `gate` holds back the answer to a tool's result.
export const serve = () =>
  new Promise((started) => {
    const api = { gate: undefined };
    let count = 0;
    const server = http.createServer((request, response) => {
      let body = '';
      request.on('data', (part) => (body += part));
      request.on('end', async () => {
        const path = new URL(request.url, 'http://localhost').pathname;
        const json = (status, value) => {
          response.writeHead(status, { 'content-type': 'application/json' });
          response.end(JSON.stringify(value));
        };
        if (request.method !== 'POST') return json(404, { type: 'error', error: { type: 'not_found_error', message: path } });
        const asked = JSON.parse(body || '{}');
        if (path.endsWith('/count_tokens')) return json(200, { input_tokens: 10 });
        if (!path.endsWith('/messages')) return json(404, { type: 'error', error: { type: 'not_found_error', message: path } });
        const { call, text } = decide(asked.messages ?? []);
        if (text?.startsWith('RESULT')) await api.gate;
        const id = `msg_${(count += 1)}`;
        const usage = { input_tokens: 10, output_tokens: 5 };
        const content = call ? { type: 'tool_use', id: `toolu_${count}`, name: call.name, input: call.input } : { type: 'text', text };
        const message = { id, type: 'message', role: 'assistant', model: asked.model, content: [content], stop_reason: call ? 'tool_use' : 'end_turn', stop_sequence: null, usage };
        if (!asked.stream) return json(200, message);
        if (call) {
          const input = JSON.stringify(call.input);
          const halves = [input.slice(0, input.length / 2), input.slice(input.length / 2)];
          return streamed(response, message, { ...content, input: {} }, halves.map((part) => ({ type: 'input_json_delta', partial_json: part })));
        }
        return streamed(response, message, { type: 'text', text: '' }, [{ type: 'text_delta', text }]);
      });
    });
    server.listen(0, '127.0.0.1', () => started(Object.assign(api, { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() })));
  });
