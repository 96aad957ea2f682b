#!/bin/bash
# Serves SGLang on the CPU, loopback only, in the foreground. Ready when GET /ready answers 200.
usage() { cat >&2 <<'U'
serve-sglang.sh [options] [-- any SGLang flags]
  --port P           HTTP port (8201)
  --kv-port K        KV events, ZeroMQ PUB (port + 10000)
  --replay-port R    replay of KV events (port + 20000)
  --model DIR        (models/smollm2-135m in $ENGINES_DIR; with --reasoning its -think variant)
  --name NAME        served model name (smollm2-135m)
  --random-weights   for a model without weights (make_model.py --tiny-qwen3)
  --kv-tokens N      size of the engine's own KV cache in tokens (16384; with --hicache 4608, to force eviction)
  --page-size N      tokens per KV block (32)
  --reasoning        reasoning parser qwen3
  --hicache          host tier in memory (1 GB); with --fs-root DIR a file tier behind it
  --pd prefill|decode  both sides of prefill/decode disaggregation over TCP; --bootstrap-port B (prefill; 8998)
  --otlp HOST:PORT   traces to an OTLP/gRPC collector
Environment: ENGINES_DIR, OMP_NUM_THREADS (2).
U
exit "${1:-64}"; }
set -euo pipefail
KIT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ENGINES_DIR=${ENGINES_DIR:-$HOME/.cache/headrace-engines}
export PYTHONDONTWRITEBYTECODE=1                 # the kit's folder may be read-only or under version control
PORT=8201 KV= REPLAY= MODEL= NAME=smollm2-135m RANDOM_WEIGHTS= TOKENS= PAGE=32 REASON= HICACHE= FS= PD= BOOT=8998 OTLP=
while [ $# -gt 0 ]; do
  case $1 in
    --port) PORT=$2 ;; --kv-port) KV=$2 ;; --replay-port) REPLAY=$2 ;; --model) MODEL=$2 ;; --name) NAME=$2 ;;
    --kv-tokens) TOKENS=$2 ;; --page-size) PAGE=$2 ;; --fs-root) FS=$2 ;; --pd) PD=$2 ;; --bootstrap-port) BOOT=$2 ;;
    --otlp) OTLP=$2 ;;
    --random-weights) RANDOM_WEIGHTS=1; shift; continue ;; --reasoning) REASON=1; shift; continue ;;
    --hicache) HICACHE=1; shift; continue ;;
    --) shift; break ;; -h | --help) usage 0 ;; *) usage ;;
  esac
  shift 2 || usage
done
KV=${KV:-$((PORT + 10000))} REPLAY=${REPLAY:-$((PORT + 20000))}
MODEL=${MODEL:-$ENGINES_DIR/models/smollm2-135m${REASON:+-think}}
[ -f "$ENGINES_DIR/sglang/.installed" ] || { echo "SGLang is not in $ENGINES_DIR: run install-sglang.sh" >&2; exit 1; }
[ -d "$MODEL" ] || { echo "no model in $MODEL: run make_model.py" >&2; exit 1; }

export PATH=$ENGINES_DIR/sglang/bin:$PATH PYTHONPATH=$KIT/stub${PYTHONPATH:+:$PYTHONPATH}
export SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}   # no spinning: shared cores

ARGS=(--model-path "$MODEL" --served-model-name "$NAME" --host 127.0.0.1 --port "$PORT"
  --device cpu --attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph
  --disable-overlap-schedule --context-length 4096 --mem-fraction-static 0.3 --max-running-requests 8
  --page-size "$PAGE" --tool-call-parser qwen25 --enable-metrics --enable-cache-report
  --kv-events-config "{\"publisher\":\"zmq\",\"bind\":true,\"endpoint\":\"tcp://127.0.0.1:$KV\",\"replay_endpoint\":\"tcp://127.0.0.1:$REPLAY\",\"topic\":\"kv@127.0.0.1:$PORT@$NAME\"}")
[ -z "$RANDOM_WEIGHTS" ] || ARGS+=(--load-format dummy)
[ -n "$HICACHE$PD" ] || ARGS+=(--sleep-on-idle)   # else its scheduler polls: a whole core, of those that all share
[ -z "$REASON" ] || ARGS+=(--reasoning-parser qwen3)
[ -z "$OTLP" ] || ARGS+=(--enable-trace --otlp-traces-endpoint "$OTLP")
# Both keep KV blocks in a host pool (a decode server those of requests that it had to set aside).
[ -z "$HICACHE$PD" ] || export SGL_KERNEL_STUB_HOST_POOL=1
if [ -n "$HICACHE" ]; then
  TOKENS=${TOKENS:-4608}
  ARGS+=(--enable-hierarchical-cache --hicache-size 1 --hicache-io-backend direct --hicache-mem-layout layer_first)
  if [ -n "$FS" ]; then
    mkdir -p "$FS"
    SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR=$(cd "$FS" && pwd); export SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR
    ARGS+=(--hicache-storage-backend file --hicache-storage-prefetch-policy wait_complete)
  fi
fi
case $PD in
  '') ;;
  prefill) ARGS+=(--disaggregation-mode prefill --disaggregation-bootstrap-port "$BOOT") ;;
  decode) ARGS+=(--disaggregation-mode decode) ;;
  *) usage ;;
esac
if [ -n "$PD" ]; then
  export SGLANG_HOST_IP=127.0.0.1 MC_TCP_BIND_ADDRESS=127.0.0.1   # the address that the two sides tell each other
  ARGS+=(--disaggregation-transfer-backend mooncake_tcp)
fi
exec python -m sglang.launch_server "${ARGS[@]}" --max-total-tokens "${TOKENS:-16384}" "$@"
