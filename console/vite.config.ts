// The console's build. Names of files carry the hash of their content, and two builds of one source are identical.
import { svelte, vitePreprocess } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// `make console-dev` serves the sources with hot reload and passes everything else to a running Toolyard.
const toolyard = process.env.TOOLYARD_URL ?? 'http://127.0.0.1:18789';

export default defineConfig({
  plugins: [svelte({ preprocess: vitePreprocess({ script: false }), compilerOptions: { runes: true } })],
  build: {
    target: 'es2023',
    outDir: 'dist',
    emptyOutDir: true,
    sourcemap: false,
    manifest: 'manifest.json',
    // The polyfill is a script for browsers that the console does not support.
    modulePreload: { polyfill: false },
    // Fonts stay files: a font inside a style sheet is loaded by everybody.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 2000,
  },
  server: {
    fs: { allow: ['..'] },
    host: '127.0.0.1',
    proxy: {
      '/console/': { target: toolyard, ws: true, changeOrigin: true, headers: { origin: toolyard } },
    },
  },
});
