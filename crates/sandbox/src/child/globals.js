// The few globals of Node and browsers that short scripts use: timers, URLs, text as bytes, copies, base 64, random ids.
// Runs once, before the script. None of them reaches anything: a timer is the parent's clock, an address is only text.
((wait, random, url, log) => {
  'use strict';
  const { defineProperty, create, keys } = Object;
  const { apply, ownKeys } = Reflect;
  const { then } = Promise.prototype;
  const define = (name, value) =>
    defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
  const text = (value) => {
    const given = `${value}`;
    return given.toWellFormed ? given.toWellFormed() : given;
  };
  const fail = (name, message) => {
    const error = new Error(message);
    defineProperty(error, 'name', { value: name, configurable: true, writable: true });
    throw error;
  };

  // Timers. What a callback throws is printed: nobody waits for it.
  const open = new Set();
  let lastTimer = 0;
  const MAX_DELAY = 2147483647;
  const delay = (ms) => {
    const number = Math.trunc(Number(ms));
    return number >= 1 && number <= MAX_DELAY ? number : number > MAX_DELAY ? 1 : 0;
  };
  const timer = (callback, ms, args, again) => {
    if (typeof callback !== 'function') throw new TypeError('the callback of a timer must be a function');
    const id = ++lastTimer;
    const round = () =>
      apply(then, wait(delay(ms)), [() => {
        if (!open.has(id)) return;
        if (!again) open.delete(id);
        try {
          callback(...args);
        } catch (error) {
          log(['Uncaught in a timer:', error]);
        }
        if (open.has(id)) round();
      }]);
    open.add(id);
    round();
    return id;
  };
  const clear = (id) => { open.delete(id); };
  define('setTimeout', (callback, ms, ...args) => timer(callback, ms, args, false));
  define('setInterval', (callback, ms, ...args) => timer(callback, Math.max(1, delay(ms)), args, true));
  define('setImmediate', (callback, ...args) => timer(callback, 0, args, false));
  define('clearTimeout', clear);
  define('clearInterval', clear);
  define('clearImmediate', clear);
  define('queueMicrotask', (callback) => {
    if (typeof callback !== 'function') throw new TypeError('the callback must be a function');
    apply(then, Promise.resolve(), [() => {
      try {
        callback();
      } catch (error) {
        log(['Uncaught in a microtask:', error]);
      }
    }]);
  });

  // Text as bytes.
  const encode = (input) => {
    const bytes = [];
    for (const character of text(input)) {
      const code = character.codePointAt(0);
      if (code < 0x80) bytes.push(code);
      else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
      else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
      else {
        bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
      }
    }
    return bytes;
  };
  // `pieces` are the characters, `rest` the bytes of a character that is not complete.
  const decode = (bytes, fatal) => {
    const pieces = [];
    const bad = () => {
      if (fatal) throw new TypeError('The encoded data was not valid for encoding utf-8');
      pieces.push('\ufffd');
    };
    let at = 0;
    while (at < bytes.length) {
      const first = bytes[at];
      if (first < 0x80) {
        pieces.push(String.fromCharCode(first));
        at += 1;
        continue;
      }
      const more = first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : 0;
      if (more === 0) {
        bad();
        at += 1;
        continue;
      }
      let code = first & (0x3f >> more);
      let low = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
      let high = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
      let taken = 1;
      while (taken <= more && at + taken < bytes.length && bytes[at + taken] >= low && bytes[at + taken] <= high) {
        code = (code << 6) | (bytes[at + taken] & 63);
        taken += 1;
        low = 0x80;
        high = 0xbf;
      }
      if (taken > more) pieces.push(String.fromCodePoint(code));
      else if (at + taken >= bytes.length) return { pieces, rest: bytes.slice(at), bad };
      else bad();
      at += taken;
    }
    return { pieces, rest: [], bad };
  };
  const bytesOf = (input) => {
    if (input === undefined) return [];
    if (input instanceof ArrayBuffer) return Array.from(new Uint8Array(input));
    if (ArrayBuffer.isView(input)) return Array.from(new Uint8Array(input.buffer, input.byteOffset, input.byteLength));
    throw new TypeError('an ArrayBuffer or a view of one is needed');
  };
  define('TextEncoder', class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(input = '') { return Uint8Array.from(encode(input)); }
    encodeInto(input, target) {
      let read = 0;
      let written = 0;
      for (const character of text(input)) {
        const bytes = encode(character);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        written += bytes.length;
        read += character.length;
      }
      return { read, written };
    }
  });
  define('TextDecoder', class TextDecoder {
    #fatal;
    #ignoreBOM;
    #rest = [];
    #begun = false;
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      if (!['utf-8', 'utf8', 'unicode-1-1-utf-8'].includes(text(label).trim().toLowerCase())) {
        throw new RangeError(`the encoding "${label}" is not supported; utf-8 is`);
      }
      this.#fatal = Boolean(fatal);
      this.#ignoreBOM = Boolean(ignoreBOM);
    }
    get encoding() { return 'utf-8'; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#ignoreBOM; }
    decode(input, { stream = false } = {}) {
      const given = bytesOf(input);
      const { pieces, rest, bad } = decode(this.#rest.length > 0 ? this.#rest.concat(given) : given, this.#fatal);
      this.#rest = stream ? rest : [];
      if (!stream && rest.length > 0) bad();
      if (!this.#begun && pieces.length > 0) {
        this.#begun = true;
        if (!this.#ignoreBOM && pieces[0] === '\ufeff') pieces.shift();
      }
      if (!stream) this.#begun = false;
      return pieces.join('');
    }
  });

  // Base 64.
  const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  define('btoa', (input) => {
    const given = `${input}`;
    let out = '';
    for (let at = 0; at < given.length; at += 3) {
      const codes = [0, 1, 2].map((n) => (at + n < given.length ? given.charCodeAt(at + n) : 0));
      if (codes.some((code) => code > 255)) fail('InvalidCharacterError', 'btoa takes characters up to U+00FF only');
      const [a, b, c] = codes;
      out += ALPHABET[a >> 2] + ALPHABET[((a & 3) << 4) | (b >> 4)];
      out += at + 1 < given.length ? ALPHABET[((b & 15) << 2) | (c >> 6)] : '=';
      out += at + 2 < given.length ? ALPHABET[c & 63] : '=';
    }
    return out;
  });
  define('atob', (input) => {
    let given = `${input}`.replace(/[\t\n\f\r ]/g, '');
    if (given.length % 4 === 0) given = given.replace(/==?$/, '');
    if (given.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(given)) {
      fail('InvalidCharacterError', 'the text is not base 64');
    }
    let out = '';
    let bits = 0;
    let count = 0;
    for (const character of given) {
      bits = ((bits << 6) | ALPHABET.indexOf(character)) & 0xffffff;
      count += 6;
      if (count >= 8) {
        count -= 8;
        out += String.fromCharCode((bits >> count) & 255);
      }
    }
    return out;
  });

  // Random numbers.
  const crypto = create(null);
  const uuid = () => {
    const bytes = random(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('');
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
  };
  defineProperty(crypto, 'randomUUID', { value: uuid });
  defineProperty(crypto, 'getRandomValues', { value: (array) => {
    if (!ArrayBuffer.isView(array) || array instanceof DataView || array instanceof Float32Array || array instanceof Float64Array) {
      throw new TypeError('an array of integers is needed');
    }
    if (array.byteLength > 65536) fail('QuotaExceededError', 'at most 65536 random bytes are given at once');
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(random(array.byteLength));
    return array;
  } });
  define('crypto', Object.freeze(crypto));

  // Copies.
  const uncloneable = (what) => fail('DataCloneError', `${what} cannot be cloned`);
  const copy = (value, seen) => {
    if (typeof value === 'function' || typeof value === 'symbol') uncloneable(`a ${typeof value}`);
    if (typeof value !== 'object' || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (made) => {
      seen.set(value, made);
      return made;
    };
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof Boolean || value instanceof Number || value instanceof String) return keep(Object(value.valueOf()));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (ArrayBuffer.isView(value)) {
      const buffer = copy(value.buffer, seen);
      const length = value instanceof DataView ? value.byteLength : value.length;
      return keep(new value.constructor(buffer, value.byteOffset, length));
    }
    if (value instanceof Map) {
      const made = keep(new Map());
      for (const [key, item] of [...value]) made.set(copy(key, seen), copy(item, seen));
      return made;
    }
    if (value instanceof Set) {
      const made = keep(new Set());
      for (const item of [...value]) made.add(copy(item, seen));
      return made;
    }
    if (value instanceof Error) {
      const kinds = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
      const made = keep(new (kinds[value.name] ?? Error)(value.message));
      if ('cause' in value) defineProperty(made, 'cause', { value: copy(value.cause, seen), writable: true, configurable: true });
      return made;
    }
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) uncloneable('such an object');
    const made = keep(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of keys(value)) made[key] = copy(value[key], seen);
    return made;
  };
  define('structuredClone', (value) => copy(value, new Map()));

  // Addresses.
  const formEncode = (value) =>
    encodeURIComponent(text(value)).replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`).replace(/%20/g, '+');
  const formDecode = (value) => {
    const bytes = [];
    const plain = encode(value.replace(/\+/g, ' '));
    for (let at = 0; at < plain.length; at += 1) {
      const hex = plain[at] === 37 ? String.fromCharCode(plain[at + 1] ?? 0, plain[at + 2] ?? 0) : '';
      if (/^[0-9A-Fa-f]{2}$/.test(hex)) {
        bytes.push(parseInt(hex, 16));
        at += 2;
      } else bytes.push(plain[at]);
    }
    const { pieces, rest, bad } = decode(bytes, false);
    if (rest.length > 0) bad();
    return pieces.join('');
  };
  let attach;
  class URLSearchParams {
    #list = [];
    #changed = () => {};
    static {
      attach = (params, query, changed) => {
        params.#list = URLSearchParams.#read(query);
        params.#changed = changed ?? params.#changed;
      };
    }
    static #read(query) {
      const parts = query.replace(/^\?/, '').split('&').filter((part) => part !== '');
      return parts.map((part) => {
        const at = part.indexOf('=');
        return at < 0 ? [formDecode(part), ''] : [formDecode(part.slice(0, at)), formDecode(part.slice(at + 1))];
      });
    }
    constructor(init = '') {
      if (typeof init === 'object' && init !== null) {
        const pairs = typeof init[Symbol.iterator] === 'function' ? [...init] : ownKeys(init).map((key) => [key, init[key]]);
        for (const pair of pairs) {
          const [name, value, ...others] = pair;
          if (value === undefined || others.length > 0) throw new TypeError('each entry must be a name and a value');
          this.#list.push([text(name), text(value)]);
        }
      } else this.#list = URLSearchParams.#read(text(init));
    }
    get size() { return this.#list.length; }
    append(name, value) { this.#list.push([text(name), text(value)]); this.#changed(); }
    delete(name, value) {
      this.#list = this.#list.filter(([n, v]) => n !== text(name) || (value !== undefined && v !== text(value)));
      this.#changed();
    }
    get(name) { return this.#list.find(([n]) => n === text(name))?.[1] ?? null; }
    getAll(name) { return this.#list.filter(([n]) => n === text(name)).map(([, v]) => v); }
    has(name, value) { return this.#list.some(([n, v]) => n === text(name) && (value === undefined || v === text(value))); }
    set(name, value) {
      const at = this.#list.findIndex(([n]) => n === text(name));
      if (at < 0) this.#list.push([text(name), text(value)]);
      else {
        this.#list[at][1] = text(value);
        this.#list = this.#list.filter(([n], index) => n !== text(name) || index === at);
      }
      this.#changed();
    }
    sort() {
      this.#list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      this.#changed();
    }
    forEach(callback, self) { for (const [name, value] of this) apply(callback, self, [value, name, this]); }
    *entries() { for (const [name, value] of this.#list) yield [name, value]; }
    *keys() { for (const [name] of this.#list) yield name; }
    *values() { for (const [, value] of this.#list) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#list.map(([name, value]) => `${formEncode(name)}=${formEncode(value)}`).join('&'); }
  }
  const PARTS = ['href', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash', 'origin'];
  class URL {
    #parts;
    #params = new URLSearchParams();
    constructor(address, base) {
      this.#take(url(text(address), base === undefined ? null : text(base), null, null));
      attach(this.#params, this.search, () => {
        const query = this.#params.toString();
        this.#parts = url(this.href, null, 'search', query);
      });
    }
    static canParse(address, base) {
      try {
        return Boolean(new URL(address, base));
      } catch {
        return false;
      }
    }
    static parse(address, base) {
      try {
        return new URL(address, base);
      } catch {
        return null;
      }
    }
    #take(parts) {
      this.#parts = parts;
      attach(this.#params, parts[8]);
    }
    static {
      for (const [at, name] of PARTS.entries()) {
        const set = name === 'origin' ? undefined : function (value) {
          this.#take(name === 'href' ? url(text(value), null, null, null) : url(this.#parts[0], null, name, text(value)));
        };
        defineProperty(URL.prototype, name, { get() { return this.#parts[at]; }, set, enumerable: true, configurable: true });
      }
    }
    get searchParams() { return this.#params; }
    toString() { return this.href; }
    toJSON() { return this.href; }
  }
  define('URL', URL);
  define('URLSearchParams', URLSearchParams);
})
