// Shows notifications and opens the page that they are about. It keeps no files and answers no requests: the console is
// always the one that Toolyard serves.

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

/** The message, if it is one of ours: texts, and a path of this origin. */
function read(data) {
  let message = {};
  try {
    message = data?.json() ?? {};
  } catch {
    // An unreadable message still says that something waits.
  }
  const text = (value, otherwise) => (typeof value === 'string' && value ? value : otherwise);
  const url = new URL(text(message.url, '/'), self.location.origin);
  return {
    title: text(message.title, 'Toolyard'),
    body: text(message.body, 'Something waits for you.'),
    tag: text(message.tag, 'toolyard'),
    path: url.origin === self.location.origin ? url.pathname : '/',
  };
}

self.addEventListener('push', (event) => {
  const { title, body, tag, path } = read(event.data);
  event.waitUntil(self.registration.showNotification(title, { body, tag, renotify: true, data: { path } }));
});

self.addEventListener('notificationclick', (event) => {
  event.notification.close();
  const path = event.notification.data?.path ?? '/';
  event.waitUntil(
    (async () => {
      const windows = await self.clients.matchAll({ type: 'window', includeUncontrolled: true });
      const open = windows.find((client) => new URL(client.url).pathname === path) ?? windows[0];
      if (!open) return self.clients.openWindow(path);
      const shown = new URL(open.url).pathname === path ? open : await open.navigate(path);
      await (shown ?? open).focus();
    })(),
  );
});

// The browser or its push service has replaced the subscription. Only a page can tell Toolyard, because the connection needs the
// browser's key and its cookie: an open one does so at once, and otherwise the user is asked to open one.
self.addEventListener('pushsubscriptionchange', (event) => {
  event.waitUntil(
    (async () => {
      const options = event.oldSubscription?.options ?? event.newSubscription?.options;
      if (!event.newSubscription && options) await self.registration.pushManager.subscribe(options);
      const windows = await self.clients.matchAll({ type: 'window', includeUncontrolled: true });
      for (const client of windows) client.postMessage('push-changed');
      if (windows.length === 0) await self.registration.showNotification('Toolyard', { body: 'Open Toolyard once, so that it can go on telling this browser.', tag: 'toolyard-renew', data: { path: '/' } });
    })(),
  );
});
