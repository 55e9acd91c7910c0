// Main-thread work a frame, from Chromium's own trace.
//
// While `drive` runs, the browser writes a trace. On the main thread of the page's renderer, every task of the event loop is
// a `RunTask` event; `tdur` is the processor time that the thread spent in it, so that other work of the machine does not
// count. A frame ends with the `Commit` event that hands it to the compositor. The work of a frame is the sum of the tasks
// that begin after the commit before it and up to its own: input, script, style, layout, pre-paint, paint, answers of the
// server, garbage collection. Only frames in which the page itself drew something are counted (an animation frame callback,
// `FireAnimationFrame`): the frames between, which the compositor scrolls, would only make the figure better.

const CATEGORIES = ['devtools.timeline', 'disabled-by-default-devtools.timeline'];

export async function workPerFrame(context, page, drive) {
  const session = await context.browser().newBrowserCDPSession();
  const events = [];
  session.on('Tracing.dataCollected', ({ value }) => events.push(...value));
  const complete = new Promise((resolve) => session.once('Tracing.tracingComplete', resolve));
  await session.send('Tracing.start', { transferMode: 'ReportEvents', traceConfig: { recordMode: 'recordAsMuchAsPossible', includedCategories: CATEGORIES } });
  // The page that is measured names itself in the trace.
  await page.evaluate(() => console.timeStamp('measured page'));
  await drive();
  await session.send('Tracing.end');
  await complete;
  return frames(events);
}

function frames(events) {
  const stamp = events.find((event) => event.name === 'TimeStamp' && event.args?.data?.message === 'measured page');
  if (!stamp) throw new Error('the trace does not name the page');
  const own = events.filter((event) => event.pid === stamp.pid && event.tid === stamp.tid && event.ts >= stamp.ts).sort((a, b) => a.ts - b.ts);
  const named = (name) => own.filter((event) => event.name === name && event.ph === 'X');
  const [tasks, commits, drawn] = [named('RunTask'), named('Commit'), named('FireAnimationFrame')];
  // A task too short for the clock of the processor time has none.
  if (!tasks.some((task) => task.tdur > 0)) throw new Error('the trace has no processor times');
  const work = [];
  const wall = [];
  let [task, draw] = [0, 0];
  for (const commit of commits) {
    let [sum, clock, drew] = [0, 0, false];
    for (; task < tasks.length && tasks[task].ts <= commit.ts; task += 1) {
      sum += (tasks[task].tdur ?? 0) / 1000;
      clock += tasks[task].dur / 1000;
    }
    for (; draw < drawn.length && drawn[draw].ts <= commit.ts; draw += 1) drew = true;
    if (drew) work.push(sum);
    if (drew) wall.push(clock);
  }
  if (process.env.VERBOSE) {
    // The same tasks by the clock on the wall, which also counts the time in which other processes had the processor.
    const sorted = [...wall].sort((a, b) => a - b);
    console.error(`by the clock on the wall: median ${sorted[Math.floor(sorted.length / 2)].toFixed(1)} ms, p95 ${sorted[Math.floor(sorted.length * 0.95)].toFixed(1)} ms`);
    const parts = ['FireAnimationFrame', 'UpdateLayoutTree', 'Layout', 'PrePaint', 'Paint', 'Layerize', 'Commit', 'EventDispatch', 'TimerFire'].map((name) => `${name} ${(named(name).reduce((sum, event) => sum + (event.tdur ?? 0), 0) / 1000 / work.length).toFixed(2)}`);
    console.error(`ms a drawn frame, on average: ${parts.join(', ')}`);
  }
  if (work.length < 50) throw new Error(`the trace has ${commits.length} frames, and only ${work.length} in which the page drew something`);
  return work;
}
