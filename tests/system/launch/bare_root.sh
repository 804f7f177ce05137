#!/bin/sh
# Inside a root of debootstrap: installs the wheel, trains on two ranks, and uninstalls. PyTorch is mounted at /torch.
set -eu
for tool in cc gcc g++ clang make cmake ninja; do
  if command -v $tool; then
    echo "this root has build tools"
    exit 1
  fi
done
python3 -m venv /opt/venv
PATH=/opt/venv/bin:$PATH
export PYTHONDONTWRITEBYTECODE=1
find /opt/venv | sort >/tmp/before
pip install --quiet --no-index --no-compile /wheels/gradbus-*.whl
echo /torch >"$(echo /opt/venv/lib/python3*/site-packages)/torch.pth"
python -c 'import gradbus; assert gradbus.__file__.startswith("/opt/venv/"), gradbus.__file__'
gradbus --version
gradbus run -np 2 --no-prefix -- python /examples/digits/train.py --epochs 3
gradbus run -np 2 --agents 2 --no-prefix -- python /examples/digits/train.py --epochs 3
rm /opt/venv/lib/python3*/site-packages/torch.pth
pip uninstall --quiet --yes gradbus
find /opt/venv -name __pycache__ -prune -o -print | sort >/tmp/after
grep -v __pycache__ /tmp/before | diff - /tmp/after
echo "nothing is left"
