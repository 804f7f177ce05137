#!/usr/bin/env bash
# Feeds each codec's decoder with made-up payloads, or sums (libFuzzer, with ASan and UBSan), one codec on each core.
#
#   scripts/fuzz.sh              every codec, 600 seconds each
#   scripts/fuzz.sh 20           ... 20 seconds each
#   scripts/fuzz.sh 60 topk qsgd:levels=7   these, 60 seconds each
#
# Exit status 1 when one of them found something, or is no codec; the input lies in build/fuzz/findings.
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
cd "$(dirname "$0")/.."

if [[ ${1:-} == --one ]]; then  # --one SECONDS CODEC: one of those that the lines below start
  name=${3//[:=,.]/_}
  log=build/fuzz/$name.log
  mkdir -p "build/fuzz/corpus/$name"
  if GRADBUS_FUZZ_CODEC=$3 build/fuzz/bin/codec_fuzz -max_total_time="$2" -max_len=8192 -timeout=10 \
    -artifact_prefix="build/fuzz/findings/$name-" -print_final_stats=1 "build/fuzz/corpus/$name" >"$log" 2>&1; then
    printf '%-20s %s\n' "$3" "$(grep -o 'number_of_executed_units: .*' "$log")"
    exit 0
  fi
  if grep '^GRADBUS_FUZZ_CODEC: ' "$log"; then exit 1; fi
  printf '%-20s FOUND SOMETHING\n%s\n' "$3" "$(tail -40 "$log")"
  exit 1
fi

seconds=${1:-600}
shift || true
codecs=("$@")
[[ $# -gt 0 ]] || codecs=(none fp16 bf16 fp8 fp8:format=e5m2 int8 int4 topk topk:values=fp16 dgc randk threshold
  rows:dim=64 rows:dim=7,values=bf16
  qsgd qsgd:levels=1 qsgd:levels=7 terngrad signsgd efsignsgd onebit signum natural powersgd blocktopk
  qsgd:entropy=zstd topk:entropy=zstd)
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target codec_fuzz >/dev/null
mkdir -p build/fuzz/findings
printf '%s\n' "${codecs[@]}" | xargs -P "$(nproc)" -I{} scripts/fuzz.sh --one "$seconds" {} ||
  { echo "findings: build/fuzz/findings"; exit 1; }
