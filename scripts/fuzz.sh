#!/usr/bin/env bash
# Feeds each codec's decoder with made-up payloads (libFuzzer, with ASan and UBSan).
#
#   scripts/fuzz.sh              every codec, 600 seconds each
#   scripts/fuzz.sh 20           ... 20 seconds each
#   scripts/fuzz.sh 60 topk qsgd:levels=7   these, 60 seconds each
#
# Exit status 1 when one of them found something; the input lies in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
shift || true
codecs=("$@")
[[ $# -gt 0 ]] || codecs=(none fp16 bf16 fp8 fp8:format=e5m2 int8 int4 topk topk:values=fp16 dgc randk threshold
  rows:dim=64 rows:dim=7,values=bf16
  qsgd qsgd:levels=1 qsgd:levels=7 terngrad signsgd efsignsgd onebit signum natural
  qsgd:entropy=zstd topk:entropy=zstd)
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target codec_fuzz >/dev/null
mkdir -p build/fuzz/findings
failed=()
for codec in "${codecs[@]}"; do
  corpus=build/fuzz/corpus/${codec//[:=,.]/_}
  mkdir -p "$corpus"
  if GRADBUS_FUZZ_CODEC=$codec build/fuzz/bin/codec_fuzz -max_total_time="$seconds" -max_len=8192 -timeout=10 \
    -artifact_prefix=build/fuzz/findings/ -print_final_stats=1 "$corpus" >build/fuzz/last.log 2>&1; then
    printf '%-20s %s\n' "$codec" "$(grep -o 'number_of_executed_units: .*' build/fuzz/last.log)"
  else
    failed+=("$codec")
    tail -40 build/fuzz/last.log
  fi
done
[[ ${#failed[@]} == 0 ]] || { echo "findings: ${failed[*]}"; exit 1; }
