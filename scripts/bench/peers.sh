# Builds peers that are measured beside Gradbus. Sourced by scripts/bench.sh and scripts/schedules.sh, in the repository.
# Horovod 0.28.1 is its last release; it compiles against PyTorch 1.13, which is Debian's.
horovod_packages=(python3-torch libtorch-dev python3-venv python3-dev python3-numpy pybind11-dev cmake g++)
horovod_version=0.28.1
horovod_deadline_s=900
peers=build/peers

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }

# wants OPTION ARGUMENTS...: whether the option is among the arguments.
wants() {
  local option=$1 word
  shift
  for word in "$@"; do [[ $word == "$option" ]] && return 0; done
  return 1
}

# install PACKAGES...: those Debian packages that are not there yet.
install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  say "Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# A failure here costs a report its Horovod columns and nothing else. The stamp is written last: a build that
# was interrupted begins again.
build_horovod() {
  local dir=$peers/horovod
  [[ -f $dir/.built && $(cat "$dir/.built") == "$horovod_version" ]] && return
  say "Horovod $horovod_version: 2 to 5 minutes, once (log: $peers/horovod.log)"
  install "${horovod_packages[@]}"
  if timeout "$horovod_deadline_s" bash -euo pipefail -c '
    dir=$1 version=$2
    /usr/bin/python3 -m venv --clear --system-site-packages "$dir"
    "$dir/bin/pip" install -q --no-build-isolation "setuptools<70" wheel packaging psutil cloudpickle pyyaml
    export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
    export HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 MAKEFLAGS=-j2
    "$dir/bin/pip" install -q --no-build-isolation --no-cache-dir "horovod==$version"
    ' _ "$dir" "$horovod_version" >"$peers/horovod.log" 2>&1; then
    echo "$horovod_version" >"$dir/.built"
  else
    say "Horovod did not build: the report will say so. See $peers/horovod.log"
  fi
}
