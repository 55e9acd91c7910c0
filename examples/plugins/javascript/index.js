// A plugin as one writes it for OpenClaw: it runs there and here, unchanged.
import { definePluginEntry, jsonResult, ToolInputError } from 'openclaw/plugin-sdk';

const operations = { add: (a, b) => a + b, subtract: (a, b) => a - b, multiply: (a, b) => a * b, divide: (a, b) => a / b };

export default definePluginEntry({
  id: 'example-javascript',
  name: 'Guarded calculator',
  description: 'Calculates, and keeps forbidden words out of new notes.',
  register(api) {
    api.registerTool({
      name: 'js_calculate',
      label: 'Calculate',
      description: 'Adds, subtracts, multiplies or divides two numbers.',
      parameters: {
        type: 'object',
        properties: {
          operation: { type: 'string', enum: Object.keys(operations) },
          a: { type: 'number' },
          b: { type: 'number' },
        },
        required: ['operation', 'a', 'b'],
        additionalProperties: false,
      },
      async execute(_callId, { operation, a, b }, _signal, onUpdate) {
        if (operation === 'divide' && b === 0) throw new ToolInputError('nothing can be divided by 0');
        onUpdate?.({ content: [{ type: 'text', text: 'calculating' }] });
        return jsonResult({ result: operations[operation](a, b) });
      },
    });

    // Not declared in contracts.tools: Toolyard refuses it and says so.
    api.registerTool({ name: 'js_undeclared', description: 'Nobody sees this.', parameters: { type: 'object' }, execute: () => null });

    api.on(
      'before_tool_call',
      ({ params }) => {
        const word = (api.pluginConfig.forbidden ?? []).find((one) => String(params.content ?? '').includes(one));
        if (word) return { block: true, blockReason: `a note must not contain "${word}"` };
        return { params: { ...params, content: String(params.content ?? '').trimEnd() + '\n' } };
      },
      { matcher: ['vault.createFile'], priority: 10 },
    );
  },
});
