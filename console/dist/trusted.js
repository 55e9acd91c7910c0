// The content security policy of the page lets one policy of Trusted Types exist: the one that Svelte makes when it is loaded.
// Registering the service worker needs a trusted address too. This script runs before every module and adds to that policy the
// permission for one address: our own worker. lib/push.ts asks for it.
(() => {
  const WORKER = '/sw.js';
  let policy = null;
  const factory = globalThis.trustedTypes;
  if (factory) {
    const create = factory.createPolicy.bind(factory);
    const createScriptURL = (url) => {
      if (url !== WORKER) throw new TypeError('only the service worker is a trusted script');
      return url;
    };
    factory.createPolicy = (name, rules) => {
      factory.createPolicy = create;
      policy = create(name, { ...rules, createScriptURL });
      return policy;
    };
  }
  const workerAddress = () => (policy ? policy.createScriptURL(WORKER) : WORKER);
  Object.defineProperty(globalThis, 'toolyardWorkerAddress', { value: workerAddress });
})();
