#!/usr/bin/env bash
# Installs what pip cannot: bubblewrap (the code grader's sandbox) and Chromium (the report's browser tests).
# Where this user may not install packages, it prints the line to type and goes on: only what needs them is affected.
set -u
missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
# Debian has it without a window, too: the browser tests take half of the time with that.
if apt-cache show chromium-headless-shell >/dev/null 2>&1; then
  command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell)
else
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
fi
[ ${#missing[@]} -eq 0 ] && exit 0
if command -v apt-get >/dev/null; then
  install=(apt-get install -y -qq --no-install-recommends "${missing[@]}")
  if [ "$(id -u)" = 0 ]; then
    echo "installing ${missing[*]} with apt-get"
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${install[@]}") >/dev/null && exit 0
  elif sudo -n true 2>/dev/null; then
    echo "installing ${missing[*]} with sudo apt-get"
    (sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive "${install[@]}") >/dev/null && exit 0
  fi
  echo "please install: sudo apt-get install ${missing[*]}"
elif command -v dnf >/dev/null; then echo "please install: sudo dnf install ${missing[*]}"
elif command -v brew >/dev/null; then echo "please install Chromium: brew install --cask chromium (bubblewrap is Linux only)"
else echo "please install with your package manager: ${missing[*]}"
fi
exit 0
