// A Gemini API on loopback that does as the prompt says: enough of its streaming for Gemini CLI, and no model behind it.
// A prompt that holds `CALL {"name":…,"input":…}` is answered with that call, and what comes back from the tool with a text
// that begins with `RESULT`. Anything else is answered with `OK`.
import http from 'node:http';

// The call that the last prompt wants, unless its result is there already.
const decide = (contents) => {
  const parts = contents.at(-1)?.parts ?? [];
  const results = parts.filter((part) => part.functionResponse);
  if (results.length > 0) return { text: `RESULT ${results.map((part) => JSON.stringify(part.functionResponse.response)).join('\n')}` };
  const wanted = parts.map((part) => /CALL (\{.*\})/.exec(part.text ?? '')?.[1]).findLast(Boolean);
  return wanted ? { call: JSON.parse(wanted) } : { text: 'OK' };
};

// Starts it. `requests` holds what Gemini CLI sent.
export const serve = () =>
  new Promise((started) => {
    const api = { requests: [], paths: [] };
    const server = http.createServer((request, response) => {
      let body = '';
      request.on('data', (part) => (body += part));
      request.on('end', () => {
        const path = new URL(request.url, 'http://localhost').pathname;
        api.paths.push(`${request.method} ${path}`);
        const json = (status, value) => {
          response.writeHead(status, { 'content-type': 'application/json' });
          response.end(JSON.stringify(value));
        };
        if (path.endsWith(':countTokens')) return json(200, { totalTokens: 10 });
        if (!/:(streamG|g)enerateContent$/.test(path)) return json(404, { error: { code: 404, message: path, status: 'NOT_FOUND' } });
        const sent = JSON.parse(body || '{}');
        api.requests.push(sent);
        const { call, text } = decide(sent.contents ?? []);
        const part = call ? { functionCall: { name: call.name, args: call.input } } : { text };
        const answer = {
          candidates: [{ content: { role: 'model', parts: [part] }, finishReason: 'STOP', index: 0 }],
          usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 },
          modelVersion: 'scripted',
        };
        if (!path.endsWith(':streamGenerateContent')) return json(200, answer);
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        return response.end(`data: ${JSON.stringify(answer)}\r\n\r\n`);
      });
    });
    server.listen(0, '127.0.0.1', () => started(Object.assign(api, { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() })));
  });
