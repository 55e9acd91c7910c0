import { mount } from 'svelte';
import App from './App.svelte';
import { time } from './lib/clock.svelte.ts';
import { hub } from './lib/hub.svelte.ts';
import { place } from './lib/location.svelte.ts';
import { shared } from './lib/shared.svelte.ts';
import './styles/tokens.css';
import './styles/components.css';
import './styles/pages.css';
import './styles/app.css';

const target = document.getElementById('app');
if (target) {
  place.start();
  time.start();
  shared.start();
  void hub.start();
  mount(App, { target });
}
