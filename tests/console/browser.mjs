// A browser for the flows: Chromium with errors, CSP reports and requests watched. A flow fails when the page logs an error.
import { AsyncLocalStorage } from 'node:async_hooks';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { extname, join } from 'node:path';
import { chromium } from 'playwright-core';

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
/**
 * Serves the console from this folder instead of the one compiled in, with the program's own headers: for work on the
 * console. Chromium takes a page that was not loaded from loopback for a stranger there, so that check is switched off.
 */
const DIST = process.env.CONSOLE_DIST;
const TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.html': 'text/html; charset=utf-8', '.woff2': 'font/woff2' };

export const DESK = { width: 1440, height: 900 };
export const TABLET = { width: 768, height: 1024 };
export const PHONE = { width: 390, height: 844 };

let started = null;
/** The profiles that the flow under way has opened. Flows that wait run beside others, so this is not a global list. */
const opened = new AsyncLocalStorage();

export function browser() {
  // The promise is kept, not the browser: two flows that begin together share one.
  started ??= chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--force-color-profile=srgb', ...(DIST ? ['--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets'] : [])] });
  return started;
}

/** Runs `drive` and closes the profiles that it opened, whatever happens. */
export async function withProfiles(drive) {
  const contexts = [];
  try {
    return await opened.run(contexts, drive);
  } finally {
    for (const context of contexts) await context.close();
  }
}

export async function closeBrowser() {
  await (await started)?.close();
  started = null;
}

/** A browser profile of its own: cookies, IndexedDB, tabs. */
export async function profile(yard, { size = DESK, theme = 'light', touch = false } = {}) {
  const context = await (await browser()).newContext({ viewport: size, colorScheme: theme, hasTouch: touch, isMobile: touch, reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'UTC' });
  opened.getStore()?.push(context);
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: yard.url });
  const problems = [];
  context.on('weberror', (event) => problems.push(`error: ${event.error().message}`));
  context.on('console', (message) => {
    // A refused connection while the server is down is what the flow is about.
    const text = message.text();
    if (message.type() === 'error' && !/WebSocket connection to|net::ERR_|status of 4\d\d/.test(text)) problems.push(`console: ${text}`);
  });
  // Every report of the content security policy and of Trusted Types is an error, also where the browser logs none.
  await context.addInitScript(() => addEventListener('securitypolicyviolation', (event) => console.error(`security policy: ${event.violatedDirective} blocked ${event.blockedURI} ${event.sample}`)));
  if (DIST) await serveFrom(context, yard);
  return { context, problems };
}

async function serveFrom(context, yard) {
  await context.route((url) => url.origin === yard.url && !/^\/(console|download|logout)/.test(url.pathname), async (route) => {
    const request = route.request();
    if (request.method() !== 'GET') return route.fallback();
    const { pathname } = new URL(request.url());
    const isFile = extname(pathname) !== '' && existsSync(join(DIST, pathname));
    const body = readFileSync(join(DIST, isFile ? pathname : 'index.html'));
    const page = await route.fetch({ url: `${yard.url}/` }).catch(() => null);
    const policy = page?.headers()['content-security-policy'];
    return route.fulfill({ body, headers: { 'content-type': TYPES[extname(isFile ? pathname : 'x.html')] ?? 'application/octet-stream', ...(policy ? { 'content-security-policy': policy } : {}) } });
  });
}

/** Pairs a profile and leaves it on Now. */
export async function paired(yard, options = {}, ...rights) {
  const made = await profile(yard, options);
  const page = await made.context.newPage();
  await page.goto(await yard.link(...rights));
  await page.getByRole('button', { name: 'Pair this browser' }).click();
  await page.getByRole('heading', { name: 'Now', exact: true }).waitFor();
  await page.getByText('Live', { exact: true }).first().waitFor({ state: 'attached' });
  return { ...made, page };
}

/** Violations that axe finds on the page as it is. */
export async function axe(page) {
  // Injected through the debugger, which the page's policy does not concern.
  const found = await page.evaluate(`(() => { ${AXE}; return axe.run(document, { resultTypes: ['violations'] }); })()`);
  return found.violations.map((each) => `${each.id} (${each.nodes.length}): ${each.nodes.slice(0, 3).map((node) => `${node.target.join(' ')} ${node.failureSummary?.split('\n')[1] ?? ''}`).join(' | ')}`);
}

/** What goes over the sockets of a page from now on: every frame, with the methods called and the numbers of the feed. */
export function framesOf(page) {
  const sockets = [];
  const sent = [];
  const received = [];
  const names = [];
  page.on('websocket', (socket) => {
    sockets.push(socket);
    for (const [event, list] of [['framesent', sent], ['framereceived', received]]) {
      socket.on(event, ({ payload }) => {
        const frame = JSON.parse(payload);
        names.push(frame.method ?? frame.event ?? frame.type);
        list.push({ ...frame, socket });
      });
    }
  });
  return {
    /** Sockets that were opened since, and how many of them were closed. */
    sockets: () => ({ opened: sockets.length, closed: sockets.filter((socket) => socket.isClosed()).length }),
    count: () => names.length,
    names: () => names,
    sent: (method) => sent.filter((each) => each.method === method),
    /** The answers to calls of a method, in order. */
    answers: (method) => sent.filter((each) => each.method === method).map((asked) => received.find((each) => each.type === 'res' && each.id === asked.id && each.socket === asked.socket)?.payload),
    feed: () => received.filter((each) => each.event === 'feed' && each.payload.seq !== undefined).map((each) => each.payload.seq),
    /** The numbers of the feed that came over the socket that was opened last. */
    newestFeed: () => received.filter((each) => each.socket === sockets.at(-1) && each.event === 'feed' && each.payload.seq !== undefined).map((each) => each.payload.seq),
  };
}
