// The flows of the console's contract, each against a Toolyard of its own. Prints "ok  N NAME" or "FAILED  N NAME".
// FLOWS=6,7 runs some of them. Flows that mostly wait (for a code to expire, for a minute offline) run beside the others.
import { closeBrowser, withProfiles } from './browser.mjs';
import { Yard } from './yard.mjs';
import { CONFIG } from './seed.mjs';
import * as approvals from './flows-approvals.mjs';
import * as losses from './flows-losses.mjs';
import * as newcomer from './flows-newcomer.mjs';
import * as pairing from './flows-pairing.mjs';
import * as push from './flows-push.mjs';
import * as rest from './flows-rest.mjs';
import * as runs from './flows-runs.mjs';
import * as servers from './flows-servers.mjs';
import * as settings from './flows-settings.mjs';

const wanted = process.env.FLOWS?.split(',');
const flows = [...pairing.flows, ...approvals.flows, ...losses.flows, ...runs.flows, ...servers.flows, ...settings.flows, ...push.flows, ...newcomer.flows, ...rest.flows].sort((a, b) => a.number - b.number).filter((flow) => !wanted || wanted.includes(String(flow.number)));
const missing = Array.from({ length: 29 }, (_, at) => at + 1).filter((number) => !wanted && !flows.some((flow) => flow.number === number));
let failed = missing.length;
for (const number of missing) console.log(`FAILED  ${number}: there is no such flow`);

async function drive(flow) {
  const begun = Date.now();
  await flow.before?.();
  const yard = await Yard.make(flow.config ?? CONFIG, flow.home);
  try {
    await withProfiles(() => flow.drive(yard));
    console.log(`ok  ${flow.number} ${flow.name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${flow.number} ${flow.name}: ${error.message}`);
    if (process.env.VERBOSE) console.log(error.stack, yard.log.slice(-3000));
  } finally {
    await yard.remove();
  }
}

const waiting = flows.filter((flow) => flow.waits).map(drive);
for (const flow of flows) if (!flow.waits) await drive(flow);
await Promise.all(waiting);
await closeBrowser();
process.exit(failed === 0 ? 0 : 1);
