// A push service on loopback that speaks the protocol of RFC 8030: it checks the sender's statement (RFC 8292) as a real one
// does, and decrypts the message as a browser does (RFC 8291), with the keys of a subscription that it hands out itself.
import { createDecipheriv, createECDH, createPublicKey, hkdfSync, randomBytes, verify } from 'node:crypto';
import { createServer } from 'node:http';

const DAY_SECONDS = 86_400;

const hkdf = (salt, secret, info, length) => Buffer.from(hkdfSync('sha256', secret, salt, info, length));

/** What a browser does with a body of the content coding aes128gcm. */
function decrypt(body, keys, auth) {
  const salt = body.subarray(0, 16);
  const recordSize = body.readUInt32BE(16);
  const sender = body.subarray(21, 21 + body[20]);
  const record = body.subarray(21 + body[20]);
  if (record.length > recordSize) throw new Error('more than one record');
  const info = Buffer.concat([Buffer.from('WebPush: info\0'), keys.getPublicKey(), sender]);
  const input = hkdf(auth, keys.computeSecret(sender), info, 32);
  const key = hkdf(salt, input, Buffer.from('Content-Encoding: aes128gcm\0'), 16);
  const nonce = hkdf(salt, input, Buffer.from('Content-Encoding: nonce\0'), 12);
  const decipher = createDecipheriv('aes-128-gcm', key, nonce);
  decipher.setAuthTag(record.subarray(-16));
  const plain = Buffer.concat([decipher.update(record.subarray(0, -16)), decipher.final()]);
  if (plain.at(-1) !== 2) throw new Error('the last record does not end as RFC 8188 wants');
  return plain.subarray(0, -1).toString();
}

/** The claims of a statement, if it is signed by the key beside it, for this origin and for at most a day. */
function claimsOf(header, origin, applicationServerKey) {
  const { token, key } = /^vapid t=(?<token>[\w.-]+), k=(?<key>[\w-]+)$/.exec(header ?? '')?.groups ?? {};
  if (!token || !key) throw new Error(`not a statement of RFC 8292: ${header}`);
  if (key !== applicationServerKey) throw new Error('the subscription was made for another key');
  const point = Buffer.from(key, 'base64url');
  const [x, y] = [point.subarray(1, 33), point.subarray(33, 65)].map((part) => part.toString('base64url'));
  const [head, claims, signature] = token.split('.');
  const publicKey = createPublicKey({ key: { kty: 'EC', crv: 'P-256', x, y }, format: 'jwk' });
  if (!verify('sha256', Buffer.from(`${head}.${claims}`), { key: publicKey, dsaEncoding: 'ieee-p1363' }, Buffer.from(signature, 'base64url'))) throw new Error('the signature is wrong');
  const said = JSON.parse(Buffer.from(claims, 'base64url'));
  const left = said.exp - Date.now() / 1000;
  if (said.aud !== origin || left <= 0 || left > DAY_SECONDS || !/^(mailto:|https:)/.test(said.sub)) throw new Error(`claims that a push service refuses: ${JSON.stringify(said)}`);
  return said;
}

export class PushService {
  #server = null;
  #subscriptions = new Map();
  #ended = new Set();
  received = [];
  /** Why requests were refused. */
  refused = [];

  static async start(port) {
    const service = new PushService();
    service.url = `http://127.0.0.1:${port}`;
    service.#server = createServer((request, response) => service.#answer(request, response));
    await new Promise((resolve) => service.#server.listen(port, '127.0.0.1', resolve));
    return service;
  }

  /** A new subscription for a server's key, as a browser's push service gives one; what a page sees of it. */
  subscribe(applicationServerKey) {
    const id = `/push/${this.#subscriptions.size + 1}`;
    const keys = createECDH('prime256v1');
    keys.generateKeys();
    const auth = randomBytes(16);
    this.#subscriptions.set(id, { keys, auth, applicationServerKey });
    return { endpoint: `${this.url}${id}`, keys: { p256dh: keys.getPublicKey('base64url'), auth: auth.toString('base64url') } };
  }

  /** From now on messages for an endpoint are answered with 410. */
  end(endpoint) {
    this.#ended.add(new URL(endpoint).pathname);
  }

  #answer(request, response) {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const status = this.#take(request, Buffer.concat(parts));
      response.writeHead(status).end();
    });
  }

  #take(request, body) {
    const subscription = this.#subscriptions.get(request.url);
    if (!subscription) return 404;
    if (this.#ended.has(request.url)) return 410;
    try {
      const { headers } = request;
      if (headers['content-encoding'] !== 'aes128gcm' || !/^\d+$/.test(headers.ttl ?? '')) throw new Error('headers that a push service refuses');
      claimsOf(headers.authorization, this.url, subscription.applicationServerKey);
      this.received.push({ endpoint: request.url, ttl: Number(headers.ttl), urgency: headers.urgency, text: decrypt(body, subscription.keys, subscription.auth) });
      return 201;
    } catch (error) {
      this.refused.push(error.message);
      return 400;
    }
  }

  stop() {
    this.#server.close();
  }
}
