// Runs once, before the script, with the two functions the child gives it. Leaves the language itself, `console` and
// `openclaw`, and takes the ways to turn text into code away. It is no boundary: the process around it is.
((start, log) => {
  'use strict';
  const { freeze, defineProperty, getOwnPropertyNames, getPrototypeOf, create } = Object;
  const { apply, deleteProperty } = Reflect;
  const { then, finally: always } = Promise.prototype;
  const language = new Set([
    'Object', 'Function', 'Array', 'Number', 'parseFloat', 'parseInt', 'Infinity', 'NaN', 'undefined', 'Boolean',
    'String', 'Symbol', 'Date', 'Promise', 'RegExp', 'Error', 'AggregateError', 'EvalError', 'RangeError',
    'ReferenceError', 'SyntaxError', 'TypeError', 'URIError', 'InternalError', 'JSON', 'Math', 'ArrayBuffer', 'DataView',
    'Uint8Array', 'Int8Array', 'Uint16Array', 'Int16Array', 'Uint32Array', 'Int32Array', 'Float16Array', 'Float32Array',
    'Float64Array', 'Uint8ClampedArray', 'BigInt64Array', 'BigUint64Array', 'Map', 'BigInt', 'Set', 'Iterator',
    'WeakMap', 'WeakSet', 'Proxy', 'Reflect', 'encodeURI', 'encodeURIComponent', 'decodeURI', 'decodeURIComponent',
    'escape', 'unescape', 'isFinite', 'isNaN', 'globalThis',
  ]);
  for (const name of getOwnPropertyNames(globalThis)) {
    if (!language.has(name)) deleteProperty(globalThis, name);
  }

  const fixed = (object, name, value) =>
    defineProperty(object, name, { value, writable: false, enumerable: false, configurable: false });
  const off = (what) => {
    const stub = function () {
      throw new EvalError(`${what} is off: code mode runs the script it was given and makes no code from text`);
    };
    fixed(stub, 'name', what);
    return stub;
  };
  const kinds = {
    Function: getPrototypeOf(function () {}),
    AsyncFunction: getPrototypeOf(async function () {}),
    GeneratorFunction: getPrototypeOf(function* () {}),
    AsyncGeneratorFunction: getPrototypeOf(async function* () {}),
  };
  for (const name of getOwnPropertyNames(kinds)) {
    const stub = off(name);
    fixed(stub, 'prototype', kinds[name]);
    fixed(kinds[name], 'constructor', stub);
  }
  fixed(globalThis, 'Function', kinds.Function.constructor);
  fixed(globalThis, 'eval', off('eval'));

  // A handle asks for nothing until somebody waits for it.
  const lazy = (method, args) => {
    let promise;
    const begin = () => (promise ??= start(method, args));
    return freeze({
      then: (kept, broken) => apply(then, begin(), [kept, broken]),
      catch: (broken) => apply(then, begin(), [undefined, broken]),
      finally: (last) => apply(always, begin(), [last]),
    });
  };
  const sealed = (members) => {
    const object = create(null);
    for (const name of getOwnPropertyNames(members)) fixed(object, name, freeze(members[name]));
    return freeze(object);
  };
  fixed(globalThis, 'console', sealed({
    log: (...items) => log(items),
    warn: (...items) => log(items),
    error: (...items) => log(items),
  }));
  fixed(globalThis, 'openclaw', sealed({
    tools: sealed({
      search: (query, options) => lazy('search', [query, options]),
      describe: (id) => lazy('describe', [id]),
      call: (id, args) => lazy('call', [id, args]),
    }),
  }));
})
