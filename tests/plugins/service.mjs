// Stands in for the service that the tested plugin talks to: remembers what it is sent and gives it back. Prints its address.
import http from 'node:http';

const memories = [];
const server = http.createServer((request, response) => {
  let body = '';
  request.on('data', (part) => (body += part));
  request.on('end', () => {
    const sent = body ? JSON.parse(body) : {};
    let answer = { results: memories };
    if (request.url.includes('/ping')) answer = { status: 'ok', org_id: 'o', project_id: 'p', user_email: 'tester@example.org' };
    else if (request.method === 'POST' && !/search|memories\/\?|v2\/memories\/$/.test(request.url)) {
      const text = sent.messages?.map((message) => message.content).join(' ') ?? '';
      memories.push({ id: `m${memories.length + 1}`, memory: text, score: 0.9 });
      answer = { results: [{ id: `m${memories.length}`, event: 'ADD', memory: text }], status: 'PENDING', event_id: 'e1' };
    }
    console.error(request.method, request.url, body.slice(0, 300));
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(answer));
  });
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
