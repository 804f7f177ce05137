# shellcheck shell=bash
# For scripts to source: their own first comment is what --help prints.

print_usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# answer_help WORDS...: for --help, prints the usage and ends the script.
answer_help() {
  local word
  for word in "$@"; do
    if [[ $word == --help || $word == -h ]]; then print_usage; exit 0; fi
  done
}

# refuse_other WORD KNOWN...: ends the script when WORD is neither empty nor one of the others.
refuse_other() {
  local word=$1 known
  shift
  for known in "" "$@"; do
    if [[ $word == "$known" ]]; then return; fi
  done
  echo "$0: unknown option $word" >&2
  print_usage >&2
  exit 2
}

# refuse_options WORD: ends the script when a word that should be a folder looks like an option.
refuse_options() {
  if [[ ${1:-} == -* ]]; then refuse_other "$1"; fi
}
