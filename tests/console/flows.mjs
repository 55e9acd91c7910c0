// The flows of the console's contract that are built, each against a Toolyard of its own. Prints "ok  N NAME" or
// "FAILED  N NAME". FLOWS=6,7 runs some of them.
import { closeBrowser } from './browser.mjs';
import { Yard } from './yard.mjs';
import { CONFIG } from './seed.mjs';
import * as approvals from './flows-approvals.mjs';
import * as pairing from './flows-pairing.mjs';
import * as rest from './flows-rest.mjs';
import * as runs from './flows-runs.mjs';

const wanted = process.env.FLOWS?.split(',');
const flows = [...pairing.flows, ...approvals.flows, ...runs.flows, ...rest.flows].sort((a, b) => a.number - b.number);
let failed = 0;

for (const flow of flows) {
  if (wanted && !wanted.includes(String(flow.number))) continue;
  const begun = Date.now();
  const yard = await Yard.make(flow.config ?? CONFIG);
  try {
    await flow.drive(yard);
    console.log(`ok  ${flow.number} ${flow.name} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${flow.number} ${flow.name}: ${error.message}`);
    if (process.env.VERBOSE) console.log(error.stack, yard.log.slice(-3000));
  } finally {
    await closeBrowser();
    await yard.remove();
  }
}
process.exit(failed === 0 ? 0 : 1);
