"""Curves of a job's communication, for TensorBoard, MLflow, W&B and the loggers of Lightning.

    from gradbus.loggers import JobLogger
    log = JobLogger(SummaryWriter("runs"))    # or the module mlflow, or what wandb.init() returned
    for step, batch in enumerate(batches):
        ...
        log(step)
    log.close()

Gradbus imports none of these packages.
"""

from ._job_logger import JobLogger

__all__ = ["JobLogger"]
