#!/bin/bash
# Serves vLLM on the CPU, loopback only, in the foreground. Ready when GET /health answers 200.
usage() { cat >&2 <<'U'
serve-vllm.sh [options] [-- any vLLM flags]
  --port P           HTTP port (8101)
  --kv-port K        KV events, ZeroMQ PUB (port + 10000)
  --replay-port R    replay of KV events (port + 20000)
  --model DIR        (models/smollm2-135m in $ENGINES_DIR; with --reasoning its -think variant)
  --name NAME        served model name (smollm2-135m)
  --random-weights   for a model without weights (make_model.py --tiny-qwen3)
  --kv-tokens N      size of the engine's own KV cache in tokens, to force eviction (1 GiB; with --offload 4480)
  --reasoning        reasoning parser qwen3
  --offload          host tier in memory; with --fs-root DIR a file tier behind it
  --cpu-bytes N      size of the host tier (200000000)
  --pd prefill|decode  NIXL, both sides of prefill/decode disaggregation; --side-port S (port + 30000)
  --otlp HOST:PORT   traces to an OTLP/gRPC collector
Environment: ENGINES_DIR, PYTHONHASHSEED (0: seed of the block hashes), OMP_NUM_THREADS (2).
U
exit "${1:-64}"; }
set -euo pipefail
KIT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ENGINES_DIR=${ENGINES_DIR:-$HOME/.cache/headrace-engines}
export PYTHONDONTWRITEBYTECODE=1                 # the kit's folder may be read-only or under version control
PORT=8101 KV= REPLAY= MODEL= NAME=smollm2-135m RANDOM_WEIGHTS= TOKENS= REASON= OFFLOAD= FS= BYTES=200000000 PD= SIDE= OTLP=
while [ $# -gt 0 ]; do
  case $1 in
    --port) PORT=$2 ;; --kv-port) KV=$2 ;; --replay-port) REPLAY=$2 ;; --model) MODEL=$2 ;; --name) NAME=$2 ;;
    --kv-tokens) TOKENS=$2 ;; --fs-root) FS=$2 ;; --cpu-bytes) BYTES=$2 ;; --pd) PD=$2 ;; --side-port) SIDE=$2 ;;
    --otlp) OTLP=$2 ;;
    --random-weights) RANDOM_WEIGHTS=1; shift; continue ;; --reasoning) REASON=1; shift; continue ;;
    --offload) OFFLOAD=1; shift; continue ;;
    --) shift; break ;; -h | --help) usage 0 ;; *) usage ;;
  esac
  shift 2 || usage
done
KV=${KV:-$((PORT + 10000))} REPLAY=${REPLAY:-$((PORT + 20000))} SIDE=${SIDE:-$((PORT + 30000))}
MODEL=${MODEL:-$ENGINES_DIR/models/smollm2-135m${REASON:+-think}}
[ -f "$ENGINES_DIR/vllm/.installed" ] || { echo "vLLM is not in $ENGINES_DIR: run install-vllm.sh" >&2; exit 1; }
[ -d "$MODEL" ] || { echo "no model in $MODEL: run make_model.py" >&2; exit 1; }
[ -z "$OFFLOAD" ] || [ -z "$PD" ] || { echo "--offload and --pd do not go together" >&2; exit 64; }

export PATH=$ENGINES_DIR/vllm/bin:$PATH HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export PYTHONHASHSEED=${PYTHONHASHSEED:-0}
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}                  # GiB
# Cores are shared with the tests and other servers: do not pin threads (vLLM's default) and do not spin.
export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind} OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
export VLLM_SERVER_DEV_MODE=1                                               # /reset_prefix_cache, /server_info, /sleep ...
export VLLM_ENABLE_RESPONSES_API_STORE=1

# vLLM's publisher binds when the address holds "*" or "::" and connects otherwise: hence loopback spelled the IPv6 way.
# Block size must be a multiple of 32 on a CPU.
ARGS=(--host 127.0.0.1 --port "$PORT" --served-model-name "$NAME" --max-model-len 4096 --max-num-seqs 16
  --block-size 32 --enforce-eager --enable-prefix-caching --prefix-caching-hash-algo sha256_cbor
  --enable-auto-tool-choice --tool-call-parser hermes --enable-prompt-tokens-details --enable-server-load-tracking
  --enable-request-id-headers --enable-scale-out
  --kv-events-config "{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://[::ffff:127.0.0.1]:$KV\",\"replay_endpoint\":\"tcp://127.0.0.1:$REPLAY\",\"topic\":\"kv@127.0.0.1:$PORT@$NAME\"}")
# enable_in_reasoning: a structured_outputs regex then covers the thinking too, which is how a test gets this model to think.
[ -z "$REASON" ] || ARGS+=(--reasoning-parser qwen3 --structured-outputs-config.enable_in_reasoning=true)
if [ -n "$OTLP" ]; then
  export OTEL_EXPORTER_OTLP_TRACES_INSECURE=true OTEL_SERVICE_NAME=vllm-$PORT
  ARGS+=(--otlp-traces-endpoint "grpc://$OTLP")
fi
if [ -n "$OFFLOAD" ]; then
  export PYTHONPATH=$KIT/plug${PYTHONPATH:+:$PYTHONPATH}
  TOKENS=${TOKENS:-4480} TIERS=
  if [ -n "$FS" ]; then
    mkdir -p "$FS"
    TIERS="{\"type\":\"fs\",\"root_dir\":\"$(cd "$FS" && pwd)\",\"n_read_threads\":2,\"n_write_threads\":2,\"enable_kv_events\":true,\"locality\":\"LOCAL\"}"
  fi
  ARGS+=(--kv-transfer-config "{\"kv_connector\":\"OffloadingConnector\",\"kv_role\":\"kv_both\",\"kv_connector_extra_config\":{\"spec_name\":\"CpuTieringOffloadingSpec\",\"spec_module_path\":\"cpu_tiering_spec\",\"cpu_bytes_to_use\":$BYTES,\"blocks_per_chunk\":4,\"self_describing_kv_events\":true,\"secondary_tiers\":[$TIERS]}}")
fi
if [ -n "$PD" ]; then
  case $PD in prefill) ROLE=kv_producer ;; decode) ROLE=kv_consumer ;; *) usage ;; esac
  export VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=$SIDE
  export UCX_NET_DEVICES=lo UCX_TLS=tcp,shm,self,cma
  ARGS+=(--kv-transfer-config "{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"$ROLE\",\"kv_buffer_device\":\"cpu\"}")
fi
[ -z "$RANDOM_WEIGHTS" ] || ARGS+=(--load-format dummy)
[ -z "$TOKENS" ] || ARGS+=(--num-gpu-blocks-override $(((TOKENS + 31) / 32)))
exec vllm serve "$MODEL" "${ARGS[@]}" "$@"
