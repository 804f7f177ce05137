"""A rank is killed at any moment: while it joins, registers, reduces, unregisters or leaves.

The others of its job get an error that names what is wrong, in bounded time. Other jobs go on with exact sums, and
the agents keep nothing of the job.
"""

import random
import re
import time

import rig as rigs

ROUNDS = 16
# Of a death, of a rank that had ended, and of a start that one rank never reached.
ERRORS = r"GB-(P101|P105|J404)"


def test_a_rank_is_killed_in_every_phase():
    """Moments are drawn from the time that a whole job takes."""
    draw = random.Random(20)
    with rigs.cluster(2) as rig:
        neighbours = rig.start_job(2, "steps:y:1000:100000000", job="neighbour")
        rig.wait_until_running("neighbour")
        before = [(agent.open_files(), agent.segments()) for agent in rig.agents]
        for number in range(ROUNDS):
            ranks = rig.start_job(4, "churn:x:50000:0.3", job=f"job-{number}", env={"GRADBUS_START_TIMEOUT": "5"})
            victim = draw.randrange(4)
            time.sleep(draw.uniform(0, 0.6) if number else 0)  # the first one dies before it joins
            ranks[victim].process.kill()
            results = [rank.finish() for rank in ranks]
            ends = {status for rank, (status, _) in enumerate(results) if rank != victim}
            assert ends <= ({0} if results[victim][0] == 0 else {0, 3}), (number, victim, results)
            for rank, (status, output) in enumerate(results):
                assert rank == victim or status == 0 or re.search(ERRORS, output), (number, victim, rank, results)
        assert [rank.process.poll() for rank in neighbours] == [None, None], neighbours[0].finish()
        for daemon in [*rig.agents, rig.server]:
            assert daemon.alive() and "GB-X001" not in daemon.text(), daemon.text()[-2000:]
        for agent, (files, segments) in zip(rig.agents, before, strict=True):
            rigs.wait_until(lambda a=agent, f=files: a.open_files() <= f, what="descriptors of ended jobs to be closed")
            rigs.wait_until(lambda a=agent, s=segments: a.segments() <= s, what="segments of ended jobs to go")
        after = rig.start_job(4, "churn:x:50000:0.3", "red:z:1000:i64:sum", job="after")
        assert [rank.finish()[0] for rank in after] == [0] * 4
