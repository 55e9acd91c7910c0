// Lets node:test import the console's TypeScript: types are removed by the compiler that also checks them.
import { register } from 'node:module';

register('./loader.mjs', import.meta.url);
