// Web Push from the question to the answer. Chromium without a vendor's push service cannot subscribe, so the page's
// PushManager is the one of push-service.mjs; everything else is real: what Toolyard sends, the service worker, the pages.
import assert from 'node:assert/strict';
import { paired, PHONE } from './browser.mjs';
import { PushService } from './push-service.mjs';
import { question } from './seed.mjs';
import { eventually, freePort } from './yard.mjs';

/** The port of the push service of the flow under way, chosen before Toolyard starts. */
let port = 0;
const withPush = () => '[notify]\ncoalesceSeconds = 0\nprivateHosts = ["127.0.0.1"]\n';

/** Gives the page a PushManager whose subscriptions the push service of this test makes. */
async function giveManager(context, service) {
  let current = null;
  await context.exposeFunction('testSubscribe', (key) => (current ??= { ...service.subscribe(key), key }));
  await context.exposeFunction('testCurrent', () => current);
  await context.exposeFunction('testUnsubscribe', () => {
    current = null;
  });
  await context.addInitScript(() => {
    const encode = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
    const decode = (text) => Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0)).buffer;
    const subscription = (made) => made && {
      endpoint: made.endpoint,
      options: { applicationServerKey: decode(made.key) },
      toJSON: () => ({ endpoint: made.endpoint, keys: made.keys }),
      unsubscribe: async () => {
        await globalThis.testUnsubscribe();
        return true;
      },
    };
    PushManager.prototype.subscribe = async (options) => subscription(await globalThis.testSubscribe(encode(options.applicationServerKey)));
    PushManager.prototype.getSubscription = async () => subscription(await globalThis.testCurrent());
  });
}

/** Hands a message to the service worker as the browser does when one comes from its push service. */
async function deliver(context, page, yard, text) {
  const session = await context.newCDPSession(page);
  const registration = new Promise((resolve) => session.on('ServiceWorker.workerRegistrationUpdated', ({ registrations }) => {
    const mine = registrations.find((each) => each.scopeURL === `${yard.url}/` && !each.isDeleted);
    if (mine) resolve(mine.registrationId);
  }));
  await session.send('ServiceWorker.enable');
  await session.send('ServiceWorker.deliverPushMessage', { origin: yard.url, registrationId: await registration, data: text });
  await session.detach();
}

async function push(yard) {
  const service = await PushService.start(port);
  try {
    const { context, page, problems } = await paired(yard, { size: PHONE, touch: true });
    await context.grantPermissions(['notifications', 'clipboard-read', 'clipboard-write'], { origin: yard.url });
    await giveManager(context, service);
    await page.goto(`${yard.url}/settings/notifications`);
    await page.getByRole('button', { name: 'Tell this browser', exact: true }).click();
    await page.getByText('Told about questions, also while this page is closed').waitFor();
    await page.getByText(/^1 browsers?$/).waitFor();

    // A question, its message, and what the service and the lock screen learn of it: that something waits.
    const { id, answer } = await question(yard);
    const message = await eventually(() => service.received[0], 'the push message');
    assert.deepEqual(service.refused, []);
    assert.equal(message.urgency, 'high');
    assert.ok(message.ttl > 0 && message.ttl <= 600, `until the question expires: ${message.ttl}`);
    assert.equal(JSON.parse(message.text).url, `/approve/${id}`);
    assert.doesNotMatch(message.text, /Garden|patchFile|allow/i);
    await deliver(context, page, yard, message.text);
    const shown = () => page.evaluate(async () => (await (await navigator.serviceWorker.ready).getNotifications()).map((each) => ({ title: each.title, body: each.body, path: each.data.path })));
    const [notification] = await eventually(async () => ((await shown()).length > 0 ? shown() : null), 'the notification');
    assert.equal(notification.path, `/approve/${id}`);

    // The first tap is on the notification, the second one on Allow.
    const worker = context.serviceWorkers()[0] ?? (await context.waitForEvent('serviceworker'));
    await worker.evaluate(async () => {
      const [notification] = await self.registration.getNotifications();
      self.dispatchEvent(new NotificationEvent('notificationclick', { notification }));
    });
    await page.waitForURL((url) => decodeURIComponent(url.pathname) === `/approve/${id}`);
    const allow = page.getByRole('button', { name: 'Allow once', exact: true });
    await allow.waitFor();
    await page.waitForTimeout(400);
    await allow.tap();
    assert.equal((await answer).ok, true);
    await eventually(async () => (await shown()).length === 0, 'the notification leaves when it is tapped');

    // The push service ends the subscription: Toolyard forgets it, and the next visit makes a new one.
    service.end(`${service.url}/push/1`);
    await question(yard, { path: 'Notes/Compost.md', content: 'x' }, 'vault.writeFile');
    await eventually(async () => (await yard.cli('notify', 'status')).subscriptions === 0, 'the ended subscription is removed');
    await page.goto(`${yard.url}/`);
    await eventually(async () => (await yard.cli('notify', 'status')).subscriptions === 1, 'the browser subscribes again');
    await question(yard, { path: 'Notes/Watering.md', content: 'x' }, 'vault.writeFile');
    await eventually(() => service.received.some((each) => each.endpoint === '/push/2'), 'a message for the new subscription');
    assert.deepEqual(service.refused, []);

    await page.goto(`${yard.url}/settings/notifications`);
    await page.getByRole('button', { name: 'Do not tell this browser' }).click();
    await page.getByText('Told only while this page is open').waitFor();
    assert.equal((await yard.cli('notify', 'status')).subscriptions, 0);
    assert.deepEqual(problems, []);
  } finally {
    service.stop();
  }
}

export const flows = [
  { number: 35, name: 'Web Push: encrypted for the browser, two taps to Allow, renewed after 410', drive: push, config: withPush, before: async () => (port = await freePort()) },
];
