"""`compression="auto"`: each bucket gets the codec that shortens steps, if any does."""

import subprocess

import pytest
import rig as rigs
from conftest import PYTHONS, RANKS, assert_all_ok, clean_environment, run_ranks

GRADBUS = str(rigs.BIN / "gradbus")
pytestmark = pytest.mark.timeout(300)


def test_a_codec_is_used_where_it_pays_and_nowhere_else(two_agents, python):
    words = ["cases", GRADBUS, two_agents.server.ready["address"], str(rigs.TOKEN_FILE)]
    assert_all_ok(run_ranks(two_agents, python, "compression/codec_choice.py", 2, *words))


def test_a_policy_with_a_codec_of_another_scale_is_refused(two_agents, python):
    words = {"GRADBUS_COMPRESSION": "fp16,signsgd"}
    assert_all_ok(run_ranks(two_agents, python, "compression/codec_choice.py", 2, "policy", **words))


def test_the_launcher_and_the_package_refuse_the_same_codecs():
    """In the same words."""
    reasons = ("looks at matrices", "signs without a magnitude", "adds momentum to the gradients")
    expected = {
        "onebit": "", "efsignsgd": "", "topk:ratio=0.1": "", "dgc:ratio=0.1,ef=residual": "", "randk": "",
        "signsgd": reasons[1], "signum:momentum=0.5": reasons[1], "dgc": reasons[2], "dgc:ef=auto": reasons[2],
        "topk:ratio=0.1,ef=dgc": reasons[2], "powersgd": reasons[0], "rows": reasons[0],
    }  # fmt: skip
    script = "\n".join(["import sys, gradbus", "from gradbus.torch._tuning.codec_choice import parse_choice",
                        "for codec in sys.argv[1:]:", "    try:", "        print(parse_choice(f'fp16,{codec}'))",
                        "    except gradbus.InvalidError as error:", "        print(error)"])  # fmt: skip
    of_package = subprocess.run([str(PYTHONS["newest"]), "-c", script, *expected], text=True, capture_output=True,
                                timeout=180, check=True, env=clean_environment()).stdout.splitlines()  # fmt: skip
    for (codec, reason), refusal in zip(expected.items(), of_package, strict=True):
        done = subprocess.run([GRADBUS, "run", "-np", "1", "--compression", f"fp16,{codec}", "--", "true"], text=True,
                              capture_output=True, timeout=60, check=False, env=clean_environment())  # fmt: skip
        assert (done.returncode != 0) == bool(reason) and (not reason or "GB-O910" in done.stderr), done
        for text in (done.stderr, refusal):
            assert [words for words in reasons if words in text] == ([reason] if reason else []), (codec, text)


@pytest.mark.skipif(bool(rigs.why_no_namespaces()), reason=f"--link cannot work: {rigs.why_no_namespaces()}")
def test_a_slow_link_gets_a_codec_of_the_policy(run_program, tmp_path):
    """Signs have a cosine of 0.8, so they are left out."""
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\nmin_dims = 2\nmin_elements = 65536\ncompression = "auto:cosine=0.9,onebit,int8"\n')
    status, output = run_program(
        [GRADBUS, "run", "-np", "2", "--agents", "2", "--link", "100mbit", "--policy", str(policy), "--no-prefix",
         "--", str(PYTHONS["newest"]), str(RANKS / "compression/codec_choice.py"), "link"],
        env=clean_environment(),
    )  # fmt: skip
    assert status == 0 and output.count("ok\n") == 2, output
    assert "a step takes int8 for 1 bucket" in output and "onebit is left out: its cosine is 0." in output, output


def test_the_launcher_checks_a_choice_and_passes_it_on():
    refused = subprocess.run([GRADBUS, "run", "-np", "1", "--compression", "fp16,topq", "--", "true"], text=True,
                             capture_output=True, timeout=60, check=False)  # fmt: skip
    assert refused.returncode != 0 and 'did you mean "topk"?' in refused.stderr, refused
    passed = subprocess.run([GRADBUS, "run", "-np", "1", "--embedded", "--no-prefix", "--compression", "auto", "--",
                             "sh", "-c", "echo $GRADBUS_COMPRESSION"], text=True, capture_output=True, timeout=60,
                            check=False)  # fmt: skip
    assert passed.stdout == "auto\n", passed
