"""Horovod 0.28's public names: gradbus.horovod has each of them, or the reason why not is here."""

import ast

import pytest
import rig as rigs

PACKAGE = rigs.REPOSITORY / "client_lib/python/gradbus/horovod"
EVERYWHERE = """Average Compression DistributedOptimizer Sum allgather allreduce broadcast ccl_built cross_rank
    cross_size cuda_built ddl_built elastic global_process_set gloo_built gloo_enabled init is_initialized local_rank
    local_size mpi_built mpi_enabled mpi_threads_supported nccl_built rank reducescatter rocm_built shutdown size
    start_timeline stop_timeline"""
PUBLIC = {
    "torch": """Adasum HorovodInternalError Max Min ProcessSet Product SyncBatchNorm add_process_set allgather_async
        allgather_object allreduce_ allreduce_async allreduce_async_ alltoall alltoall_async barrier broadcast_
        broadcast_async broadcast_async_ broadcast_object broadcast_optimizer_state broadcast_parameters check_extension
        grouped_allgather grouped_allgather_async grouped_allreduce grouped_allreduce_ grouped_allreduce_async
        grouped_allreduce_async_ grouped_reducescatter grouped_reducescatter_async join poll reducescatter_async
        remove_process_set sparse_allreduce_async synchronize """ + EVERYWHERE,
    "tensorflow": """Adasum BroadcastGlobalVariablesHook DistributedGradientTape LocalGradientAggregationHelper Max Min
        PartialDistributedGradientTape ProcessSet Product SyncBatchNormalization add_process_set allgather_object
        alltoall broadcast_ broadcast_global_variables broadcast_object broadcast_object_fn broadcast_variables
        check_extension check_num_rank_power_of_2 gpu_available grouped_allgather grouped_allreduce
        grouped_reducescatter handle_average_backwards_compatibility is_homogeneous join local_rank_op local_size_op
        process_set_included_op rank_op refs_to_vars remove_process_set size_op split_list
        vars_to_refs """ + EVERYWHERE,
    "keras": "Adasum PartialDistributedOptimizer broadcast_global_variables callbacks load_model " + EVERYWHERE,
    "tensorflow/keras": """ProcessSet add_process_set broadcast_global_variables callbacks is_version_greater_equal_than
        load_model remove_process_set """ + EVERYWHERE,
    "torch/elastic": "ElasticSampler ObjectState TorchState init run run_fn shutdown",
    "torch/elastic/sampler": "ElasticSampler",
    "torch/optimizer": "DistributedOptimizer",
    "torch/sync_batch_norm": "SyncBatchNorm",
    "torch/elastic/state": """ModelStateHandler OptimizerStateHandler SamplerStateHandler StateHandler TorchState
        get_handler_registry set_handler_registry""",
    "torch/mpi_ops": """HorovodAllgather HorovodAllreduce HorovodAlltoall HorovodBroadcast HorovodGroupedAllgather
        HorovodGroupedAllreduce HorovodGroupedReducescatter HorovodReducescatter _basics allreduce
        handle_average_backwards_compatibility""",
    "torch/functions": "allgather_object broadcast_object broadcast_optimizer_state broadcast_parameters",
    "tensorflow/mpi_ops": "_basics allreduce broadcast_ check_num_rank_power_of_2",
    "tensorflow/functions": "allgather_object broadcast_object broadcast_object_fn broadcast_variables",
    "tensorflow/sync_batch_norm": "SyncBatchNormalization",
    "tensorflow/util": "_cache _executing_eagerly _make_subgraph refs_to_vars vars_to_refs",
    "mxnet/mpi_ops": "_basics allreduce init",
    "mxnet/functions": "allgather_object broadcast_object",
    "mxnet/compression": "Compression",
    "data": "AsyncDataLoaderMixin BaseDataLoader",
    "common/basics": "HorovodBasics",
    "common/exceptions": "HorovodInternalError HorovodVersionMismatchError HostsUpdatedInterrupt",
    "common/elastic": "ObjectState State notification_manager run_fn",
    "common/process_sets": "ProcessSet add_process_set global_process_set process_set_by_id remove_process_set",
    "common/util": """_cache ccl_built check_extension check_installed_version ddl_built env extension_available
        get_ext_suffix gloo_built gpu_available is_iterable
        is_version_greater_equal_than mpi_built nccl_built num_rank_is_power_2 split_list""",
    "runner": "run",
    "tensorflow/elastic": "ObjectState TensorFlowKerasState TensorFlowState run",
    "keras/elastic": "CommitStateCallback KerasState UpdateBatchStateCallback UpdateEpochStateCallback run",
    "tensorflow/keras/elastic": "CommitStateCallback KerasState UpdateBatchStateCallback UpdateEpochStateCallback run",
    "keras/callbacks": """BestModelCheckpoint BroadcastGlobalVariablesCallback LearningRateScheduleCallback
        LearningRateWarmupCallback MetricAverageCallback""",
    "tensorflow/keras/callbacks": """BestModelCheckpoint BroadcastGlobalVariablesCallback LearningRateScheduleCallback
        LearningRateWarmupCallback MetricAverageCallback""",
    "mxnet": """Adasum Average Compression DistributedOptimizer DistributedTrainer Max Min ProcessSet Product Sum
        add_process_set allgather allgather_object allreduce allreduce_ alltoall broadcast broadcast_ broadcast_object
        broadcast_parameters ccl_built check_extension cross_rank cross_size cuda_built ddl_built global_process_set
        gloo_built gloo_enabled grouped_allgather grouped_allreduce grouped_allreduce_ grouped_reducescatter init
        is_initialized local_rank local_size mpi_built mpi_enabled mpi_threads_supported nccl_built rank reducescatter
        remove_process_set rocm_built shutdown size split_list start_timeline stop_timeline""",
    ".": "run",
}  # fmt: skip
MISSING = {
    "LocalGradientAggregationHelper": "accumulates gradients inside Horovod's optimizers of tf.compat.v1, refused here",
}


def exported(module: str) -> set[str]:
    """Names that the module binds at its top; its framework need not be installed."""
    path = PACKAGE / module / "__init__.py"
    names = set()
    for node in ast.parse((path if path.exists() else PACKAGE / f"{module}.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            names |= exported("keras/_names")
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_there_or_has_a_reason(module):
    assert set(PUBLIC[module].split()) - exported(module) - set(MISSING) == set()


def test_what_is_said_to_be_missing_is_missing():
    everything = set().union(*(exported(module) for module in PUBLIC))
    assert everything & set(MISSING) == set()
