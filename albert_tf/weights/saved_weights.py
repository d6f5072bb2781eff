"""Reads the weights of TensorFlow 2 SavedModels, by canonical name.

Variables in a SavedModel have no names, only positions in an object graph. In
ours, the object graph contains the canonical names; in TF Hub's ALBERT modules
(`/3`), it contains Keras's names, which `HUB_NAMES` translates.
"""

import numpy as np
from tensorflow.core.protobuf import trackable_object_graph_pb2

from albert_tf import filesystem

# The key of the object graph in a TensorFlow 2 checkpoint.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# The attribute with our weights, a dict by canonical name.
WEIGHTS = "weights"
WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
# The submodule that also contains the weights of the pretraining heads.
WITH_HEADS = "mlm"
_LAYER = "bert/encoder/transformer/group_0/inner_group_0"
_ATTENTION = f"{_LAYER}/attention_1"
# Suffixes of names in TF Hub's modules -> canonical names.
# Source: tf2_albert_encoder_checkpoint_converter.py of TensorFlow's models.
HUB_NAMES = {
    "word_embeddings/embeddings": WORD_EMBEDDINGS,
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm/{}": "bert/embeddings/LayerNorm/{}",
    "embedding_projection/{}": "bert/encoder/embedding_hidden_mapping_in/{}",
    "transformer/self_attention/query/{}": f"{_ATTENTION}/self/query/{{}}",
    "transformer/self_attention/key/{}": f"{_ATTENTION}/self/key/{{}}",
    "transformer/self_attention/value/{}": f"{_ATTENTION}/self/value/{{}}",
    "transformer/self_attention/attention_output/{}": (
        f"{_ATTENTION}/output/dense/{{}}"
    ),
    "transformer/self_attention_layer_norm/{}": f"{_LAYER}/LayerNorm/{{}}",
    "transformer/intermediate/{}": f"{_LAYER}/ffn_1/intermediate/dense/{{}}",
    "transformer/output/{}": (f"{_LAYER}/ffn_1/intermediate/output/dense/{{}}"),
    "transformer/output_layer_norm/{}": f"{_LAYER}/LayerNorm_1/{{}}",
    "pooler_transform/{}": "bert/pooler/dense/{}",
}
# Values of {}, in dense layers and norms.
_PARTS = ("kernel", "bias", "beta", "gamma")


def read_weights(values: dict, path: filesystem.Path) -> dict[str, np.ndarray]:
    """Returns the weights of a SavedModel by canonical name.

    `values` are by their keys in its checkpoint.

    Raises:
      ValueError: if it has neither our names nor those of TF Hub's ALBERT;
        `path`, its folder, is named.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
        values[OBJECT_GRAPH]
    )
    children = _children(graph, graph.nodes[0])
    if WEIGHTS in children:
        if WITH_HEADS in children:
            children = _children(graph, children[WITH_HEADS])
        nodes = _children(graph, children[WEIGHTS])
        if WORD_EMBEDDINGS not in nodes:
            raise ValueError(
                f"{path} was exported with export_compact=True, without its "
                "large weights. Use the checkpoint from which it was exported."
            )
        return {
            name: values[node.attributes[0].checkpoint_key]
            for name, node in nodes.items()
        }
    theirs = {
        attribute.full_name: values[attribute.checkpoint_key]
        for node in graph.nodes
        for attribute in node.attributes
        if attribute.checkpoint_key in values
    }
    weights = {}
    for name, canonical in HUB_NAMES.items():
        for part in _PARTS if "{}" in name else [""]:
            ending, ours = f"/{name.format(part)}", canonical.format(part)
            matches = [x for x in theirs if f"/{x}".endswith(ending)]
            if matches:
                weights[ours] = _flatten(ours, theirs[matches[0]])
    if not weights:
        raise ValueError(
            f"{path} is a SavedModel, but neither ours nor one of TF Hub's "
            f"ALBERT modules: it has variables such as {sorted(theirs)[:3]}. "
            "Use the checkpoint from which it was exported."
        )
    return weights


def _children(graph, node):
    """Returns the child nodes of a node, by name."""
    return {
        child.local_name: graph.nodes[child.node_id] for child in node.children
    }


def _flatten(canonical, value):
    """Merges the axis of attention heads, which the release does not have."""
    if canonical.endswith("attention_1/output/dense/kernel"):
        return value.reshape(-1, value.shape[-1])  # [N, D, H]
    if "/self/" in canonical and canonical.endswith("kernel"):
        return value.reshape(value.shape[0], -1)  # [H, N, D]
    if "/self/" in canonical:
        return value.reshape(-1)  # [N, D]
    return value
