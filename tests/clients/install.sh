#!/usr/bin/env bash
# Installs the agent frameworks of requirements.txt, a complete pinned list, into a virtual environment in $CLIENTS_DIR.
# They want other versions of shared packages than the gateway does. Safe to run again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CLIENTS_DIR=${CLIENTS_DIR:-$HOME/.cache/headrace-clients}
stamp=$CLIENTS_DIR/.installed
cmp -s "$here/requirements.txt" "$stamp" && exit 0
[ -x "$CLIENTS_DIR/bin/python" ] || "${PYTHON:-python3.11}" -m venv "$CLIENTS_DIR"
echo "installing agent frameworks into $CLIENTS_DIR ..." >&2
"$CLIENTS_DIR/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt"
cp "$here/requirements.txt" "$stamp"
