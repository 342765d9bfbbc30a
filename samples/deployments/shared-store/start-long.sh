#!/usr/bin/env bash
# Long documents: YaRN stretches the same model to 128k; it shares the chat servers' store.
set -euo pipefail

uv pip install "sglang[all]==0.5.9"

export MOONCAKE_MASTER=mooncake-master.kv.internal:50051
export MOONCAKE_PROTOCOL=rdma
export MOONCAKE_TE_META_DATA_SERVER=http://mooncake-master.kv.internal:8080/metadata

MODEL=${MODEL:-/models/Qwen2.5-72B-Instruct}

exec python3 -m sglang.launch_server \
  --model-path "$MODEL" \
  --served-model-name qwen2.5-72b-long \
  --dtype bfloat16 \
  --tp 8 \
  --page-size 64 \
  --context-length 131072 \
  --json-model-override-args '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}' \
  --mem-fraction-static 0.86 \
  --enable-hierarchical-cache \
  --hicache-ratio 2 \
  --hicache-storage-backend mooncake \
  --enable-cache-report \
  --host 0.0.0.0 --port 30000
