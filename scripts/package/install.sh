#!/bin/sh
# Copies Toolyard from this folder to a prefix: install.sh [PREFIX], /usr/local for root and ~/.local for everybody else.
# install.sh --uninstall [PREFIX] removes what was copied. Notes, configuration and records (~/.toolyard) stay.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
action=install
if [ "${1:-}" = --uninstall ]; then
  action=uninstall
  shift
fi
if [ "$(id -u)" = 0 ]; then default=/usr/local; else default=$HOME/.local; fi
prefix=${1:-$default}

files() { (cd "$here" && find bin libexec share \( -type f -o -type l \) | sort); }

case $action in
install)
  files | while IFS= read -r file; do
    mkdir -p "$prefix/$(dirname "$file")"
    # A program that runs cannot be written over; it can be replaced.
    rm -f "$prefix/$file"
    cp -P "$here/$file" "$prefix/$file"
  done
  echo "Toolyard is installed: $prefix/bin/toolyard"
  case ":$PATH:" in
  *":$prefix/bin:"*) echo "Next: toolyard up" ;;
  *) echo "Next: add $prefix/bin to PATH, then run: toolyard up" ;;
  esac
  ;;
uninstall)
  files | while IFS= read -r file; do rm -f "$prefix/$file"; done
  rmdir "$prefix/libexec/toolyard" "$prefix/share/doc/toolyard" 2>/dev/null || true
  echo "Toolyard is removed from $prefix; ~/.toolyard stays."
  ;;
esac
