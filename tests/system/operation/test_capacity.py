"""The formulas of docs/how-to/capacity-planning.md, measured on real daemons."""

import pytest
import rig as rigs
from scrape import METRICS, scrape

COUNT, ROUNDS = 1_000_000, 4
GRADIENTS = 4 * COUNT  # bytes: G of the page
PER_JOB_MAX = 1_100_000  # bytes of a job besides its gradients, as the page says
CODEC_MAX = 2  # G of buffers for compressed gradients, as the page says
CONTROL_MAX = 0.02  # share of headers and other small messages
pytestmark = pytest.mark.timeout(240)


def job_bytes(daemon, name: str) -> float:
    """The bytes of the job's links; 0 while the daemon has not shown any."""
    return sum(value for (of, labels), value in scrape(daemon).items() if of == name and ("job_name", "j") in labels)


def assert_near(measured: float, formula: float) -> None:
    """Not less than the formula, and little more."""
    assert formula <= measured <= formula * (1 + CONTROL_MAX), (measured, formula)


@pytest.mark.parametrize("nodes, ranks_per_node, compression, ratio", [(2, 2, "", 1), (4, 1, "", 1), (2, 1, "fp16", 2)])
def test_memory_and_network_of_a_node(nodes, ranks_per_node, compression, ratio):
    size = nodes * ranks_per_node
    with rigs.cluster(nodes, *METRICS) as rig:
        go_on = rig.folder / "go-on"
        ranks = rig.start_job(size, f"steps:x:{COUNT}:{ROUNDS}", f"touch:{rig.folder}/done", f"await:{go_on}", job="j",
                              env={"GRADBUS_COMPRESSION": compression} if compression else None)
        rigs.wait_until((rig.folder / "done").exists, what="the rounds")

        def sent() -> list[float]:
            return [job_bytes(agent, "gradbus_link_sent_bytes_total") for agent in rig.agents]

        per_round = 2 * (nodes - 1) / nodes * GRADIENTS / ratio
        rigs.wait_until(lambda: sum(sent()) >= nodes * ROUNDS * per_round, what="pages with all rounds")
        assert_near(sum(sent()), nodes * ROUNDS * per_round)
        for agent in rig.agents:
            more = scrape(agent).value("gradbus_arena_bytes") - ranks_per_node * GRADIENTS
            assert 0 <= more <= PER_JOB_MAX + (CODEC_MAX * GRADIENTS if compression else 0), more
        go_on.touch()
        assert [rank.finish()[0] for rank in ranks] == [0] * size
