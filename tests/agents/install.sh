# Sourced by the suites of coding agents. Installs a suite's npm packages once, outside the checkout.
# usage: install_agent HERE "NAME (SIZE)" PROGRAM
# Sets `node` and `agent` to the installed programs and puts both on the path, because the agents' start scripts look for
# node there. Exits with 77 where something cannot be downloaded or does not run (see ../external.sh).

cannot_run() { echo "$(basename "$here"): cannot run: $1" >&2; exit 77; }

install_agent() {
  local here="$1" label="$2" program="$3"
  local cache="${TOOLYARD_NPM_CACHE:-$HOME/.cache/toolyard/npm}/$(basename "$here")"
  if ! cmp -s "$here/package-lock.json" "$cache/installed.json"; then
    command -v npm >/dev/null || cannot_run "npm is missing (install Node.js)"
    mkdir -p "$cache"
    cp "$here/package.json" "$here/package-lock.json" "$cache/"
    echo "installing $label and Node.js, once" >&2
    (cd "$cache" && npm ci --no-audit --no-fund --loglevel=error >install.log 2>&1) \
      || cannot_run "npm cannot install $label (see $cache/install.log)"
    cp "$here/package-lock.json" "$cache/installed.json"
  fi
  node="$cache/node_modules/.bin/node"
  agent="$cache/node_modules/.bin/$program"
  "$node" --version >/dev/null 2>&1 || cannot_run "Node 24 from npm does not run here"
  export PATH="$cache/node_modules/.bin:$PATH"
  "$agent" --version >/dev/null 2>&1 || cannot_run "this version of $program does not run here"
}
