// Stands before a Toolyard and shows its credential: the conformance suite can show none. Everything else, `Host` and
// `Origin` above all, passes as it came. Usage: proxy.mjs <upstream url> <token>; prints its own address.
import http from 'node:http';

const [upstream, token] = process.argv.slice(2);
const target = new URL(upstream);
const server = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  const onward = http.request({ host: target.hostname, port: target.port, path: request.url, method: request.method, headers });
  onward.on('response', (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    response.flushHeaders();
    answer.pipe(response);
    answer.on('error', () => response.destroy());
  });
  onward.on('error', () => response.destroy());
  // A client that goes away is gone upstream too.
  response.on('close', () => onward.destroy());
  request.pipe(onward);
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
