// The console's build. Names of files carry the hash of their content, and two builds of one source are identical.
import { svelte, vitePreprocess } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type ProxyOptions } from 'vite';

// `make console-dev` serves the sources with hot reload and passes everything else to a running Toolyard, in its own name.
const toolyard = process.env.TOOLYARD_URL ?? 'http://127.0.0.1:18789';
const passOn: ProxyOptions = { target: toolyard, ws: true, changeOrigin: true, headers: { origin: toolyard } };
// The page /pair is ours, the request POST /pair is Toolyard's.
const passOnPosts: ProxyOptions = { ...passOn, ws: false, bypass: (request) => (request.method === 'POST' ? undefined : '/index.html') };

export default defineConfig(({ command }) => ({
  plugins: [svelte({ preprocess: vitePreprocess({ script: false }), compilerOptions: { runes: true } })],
  define: command === 'serve' ? { 'import.meta.env.VITE_TOOLYARD_URL': JSON.stringify(toolyard) } : {},
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
    host: '127.0.0.1',
    fs: { allow: ['..'] },
    proxy: { '/console/': passOn, '/download/': passOn, '/logout': passOn, '/pair': passOnPosts },
  },
}));
