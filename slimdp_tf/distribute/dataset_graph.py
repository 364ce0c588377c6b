"""A tf.data pipeline as a graph: cut into the parts of the workers, with the same shuffles everywhere."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# Operations that make of a part of the rows a part of the elements: cutting the source cuts the result.
_ROW_WISE = frozenset(
    "TensorSliceDataset MapDataset ParallelMapDataset ParallelMapDatasetV2 BatchDataset BatchDatasetV2 "
    "ParallelBatchDataset MapAndBatchDataset ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3 RepeatDataset "
    "PrefetchDataset CacheDataset CacheDatasetV2 OptionsDataset ZipDataset FilterDataset ModelDataset "
    "MaxIntraOpParallelismDataset PrivateThreadPoolDataset FinalizeDataset".split()
)
_PYTHON = frozenset(("PyFunc", "PyFuncStateless", "EagerPyFunc"))


def refuse_python(definition: tf.compat.v1.GraphDef) -> None:
    """Raises ValueError if Python code is part of a pipeline: it would run in the chief's process, for all workers."""
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    if any(node.op in _PYTHON for node in nodes):
        raise ValueError(
            "Python code (Dataset.from_generator, tf.py_function, tf.numpy_function) is part of this dataset. The "
            "workers run TensorFlow graphs only: write it with TensorFlow operations, or write its data to files first."
        )


def shard_graph(graph: bytes, workers: int, seed: int) -> tuple[list[bytes], bool]:
    """Cuts a serialized pipeline into one per worker.

    Where every operation works row by row on in-memory tensors, worker k's graph holds rows k, k + workers, ... only.
    Otherwise all graphs are the same, and the caller takes every `workers`-th element on the worker: that is a
    partition because shuffles that had no seed are given one.

    Args:
        graph: a serialized GraphDef.
        workers: how many parts.
        seed: for shuffles without one.

    Returns:
        The serialized GraphDefs, and whether they are parts already.
    """
    definition = tf.compat.v1.GraphDef.FromString(graph)
    nodes = {node.name: node for node in definition.node}
    _seed_shuffles(definition.node, nodes, seed)
    datasets = [node for node in definition.node if "Dataset" in node.op]
    slices = [node for node in datasets if node.op == "TensorSliceDataset"]
    columns = [nodes[_origin(name)] for node in slices for name in node.input]
    is_row_wise = bool(slices) and all(node.op in _ROW_WISE for node in datasets)
    used_whole = {_origin(name) for node in definition.node if node.op != "TensorSliceDataset" for name in node.input}
    if not is_row_wise or any(node.op != "Const" or node.name in used_whole for node in columns):
        return [definition.SerializeToString()] * workers, False
    rows = {name: _array_of(nodes[name].attr["value"].tensor) for name in {node.name for node in columns}}
    fewest = min(len(array) for array in rows.values())
    if fewest < workers:
        raise ValueError(f"Every worker needs an example of its own: at least {workers}. Received: {fewest}")
    parts = []
    for worker in range(workers):
        for name, array in rows.items():
            nodes[name].attr["value"].tensor.CopyFrom(
                tf.make_tensor_proto(np.ascontiguousarray(array[worker::workers]))
            )
        parts.append(definition.SerializeToString())
    return parts, True


def _array_of(tensor) -> np.ndarray:
    """The array that a TensorProto holds; strings (file names, say) are packed in a way only TensorFlow's C++ reads."""
    if tensor.dtype != tf.string.as_datatype_enum:
        return tf.make_ndarray(tensor)
    return tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy()


def _seed_shuffles(all_nodes, nodes: dict, seed: int) -> None:
    for number, node in enumerate(all_nodes):
        if not node.op.startswith("ShuffleDataset"):
            continue
        seeds = [nodes[_origin(name)] for name in node.input[2:4]]
        if all(n.op == "Const" and not tf.make_ndarray(n.attr["value"].tensor).any() for n in seeds):
            seeds[0].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.int64(seed + 1)))
            seeds[1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.int64(number + 1)))


def _origin(name: str) -> str:
    return name.split(":")[0].lstrip("^")
