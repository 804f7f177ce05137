"""A coordinator that cannot keep its state says so at its start."""

import os
import shutil
import stat
import subprocess

import conftest
import pytest
import rig as rigs

DEADLINE_S = 120.0


def refused(*within: str, folder: str) -> str:
    """What a coordinator says that does not start."""
    done = subprocess.run([*within, rigs.BIN / "gradbus-server", "--listen", "127.0.0.1:0", "--state-dir", folder],
                          text=True, capture_output=True, timeout=DEADLINE_S, check=False)  # fmt: skip
    assert done.returncode == 1, done
    lines = [line for line in done.stderr.splitlines() if "GB-F116 CANNOT_KEEP_STATE" in line]
    assert len(lines) == 1 and folder in lines[0] and " | next: " in lines[0], done.stderr
    return lines[0]


def test_a_folder_that_cannot_be_written(tmp_path):
    """Below a file, read-only, and on a full disk. A folder that can be made is made, and stays clean."""
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(folder=str(tmp_path / "file" / "state"))
    folder = tmp_path / "new" / "state"
    with rigs.cluster(0, server_arguments=("--state-dir", str(folder))) as rig:
        assert rig.server.alive() and os.listdir(folder) == []
    if os.geteuid() != 0:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert "Permission denied" in refused(folder=str(folder))


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts need root")
@pytest.mark.parametrize("options, reason", [("size=64k", "No space left"), ("ro", "Read-only")])
def test_a_disk_that_is_full_or_read_only(tmp_path, options, reason):
    """The whole file must fit, not only its first entry."""
    script = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    within = ["unshare", "--mount", "sh", "-c", script, str(tmp_path)]
    assert reason in refused(*within, folder=str(tmp_path))


def test_a_run_that_autotunes_does_not_need_the_folder(tmp_path):
    """It is the command's own choice of a folder, so there is a warning, and the job runs."""
    (tmp_path / "file").write_text("")
    environment = conftest.clean_environment(XDG_STATE_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path))
    done = subprocess.run([rigs.BIN / "gradbus", "run", "-np", "1", "--embedded", "--autotune", "--",
                           rigs.BIN / "scripted_rank", "barrier"], env=environment, text=True, capture_output=True,
                          timeout=DEADLINE_S, check=False)  # fmt: skip
    assert done.returncode == 0 and "ok barrier" in done.stdout, done
    assert done.stderr.count("GB-F116") == 1 and "settings end with this job" in done.stderr, done.stderr
