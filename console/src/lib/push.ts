// Web Push for this browser: a service worker shows what Toolyard sends, and the push service in between cannot read it.

import { hub } from './hub.svelte.ts';
import { prefs } from './prefs.svelte.ts';
import { Problem } from './problem.ts';
import { fromBase64 } from './seam.ts';

export type PushState = 'unsupported' | 'denied' | 'off' | 'on';

/** The worker's address, trusted where the browser asks for that: public/trusted.js defines it before any module is loaded. */
function workerAddress(): string {
  const trusted = (globalThis as { toolyardWorkerAddress?: () => string }).toolyardWorkerAddress;
  return trusted ? trusted() : '/sw.js';
}

function isSupported(): boolean {
  return window.isSecureContext && 'serviceWorker' in navigator && 'PushManager' in window && 'Notification' in window;
}

/** Whether this browser is sent notifications. */
export async function pushState(): Promise<PushState> {
  if (!isSupported()) return 'unsupported';
  if (Notification.permission === 'denied') return 'denied';
  const worker = await navigator.serviceWorker.getRegistration('/');
  const subscription = await worker?.pushManager.getSubscription();
  if (!subscription) return 'off';
  const known = await hub.call('notify.push', {});
  return known.subscribed ? 'on' : 'off';
}

/** Asks the user, subscribes at the browser's push service, and tells Toolyard. Must be called from a click. */
export async function enablePush(): Promise<PushState> {
  if (!isSupported()) return 'unsupported';
  const allowed = await Notification.requestPermission();
  if (allowed !== 'granted') return allowed === 'denied' ? 'denied' : 'off';
  const server = await hub.call('notify.push', {});
  if (!server.enabled) throw new Problem({ code: 'PUSH_OFF', message: 'Web Push is switched off.', suggestion: server.why ?? 'Set notify.push.enabled.' });
  await subscribe(server);
  return 'on';
}

interface Server { publicKey: string; subscribed: boolean }

async function subscribe(server: Server): Promise<void> {
  await navigator.serviceWorker.register(workerAddress(), { scope: '/' });
  const worker = await navigator.serviceWorker.ready;
  const key = fromBase64(server.publicKey);
  const earlier = await worker.pushManager.getSubscription();
  // A subscription for another key would be refused by the push service. One that Toolyard does not have any more may be one
  // that the push service has ended: a new one is made.
  if (earlier && (!isFor(earlier, key) || !server.subscribed)) await earlier.unsubscribe();
  const subscription = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = subscription.toJSON();
  await hub.call('notify.subscribe', { endpoint: endpoint ?? '', keys: { p256dh: keys?.p256dh ?? '', auth: keys?.auth ?? '' } });
  prefs.pushTold = await hashOf(subscription);
  prefs.apply();
}

async function hashOf(subscription: PushSubscription): Promise<string> {
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(subscription.endpoint)));
  return [...hash].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * Subscribes again where this browser is told and its subscription is not the one that Toolyard has: the browser renewed it,
 * its push service ended it, or Toolyard has another key. Gives whether it did.
 */
export async function refreshPush(): Promise<boolean> {
  if (!prefs.pushTold || !isSupported() || Notification.permission !== 'granted') return false;
  const server = await hub.call('notify.push', {});
  if (!server.enabled) return false;
  const worker = await navigator.serviceWorker.getRegistration('/');
  const current = await worker?.pushManager.getSubscription();
  if (server.subscribed && current && isFor(current, fromBase64(server.publicKey)) && (await hashOf(current)) === prefs.pushTold) return false;
  await subscribe(server);
  return true;
}

function isFor(subscription: PushSubscription, key: Uint8Array): boolean {
  const own = subscription.options.applicationServerKey;
  return own !== null && new Uint8Array(own).every((byte, at) => byte === key[at]);
}

/** Ends the subscription here and at Toolyard. */
export async function disablePush(): Promise<PushState> {
  const worker = isSupported() ? await navigator.serviceWorker.getRegistration('/') : undefined;
  const subscription = await worker?.pushManager.getSubscription();
  await subscription?.unsubscribe();
  prefs.pushTold = '';
  prefs.apply();
  await hub.call('notify.unsubscribe', {});
  return 'off';
}
