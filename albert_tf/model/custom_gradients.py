"""Functions with gradients of their own."""

import functools
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops


def custom_gradient(function):
    """Like tf.custom_gradient, but frees the graph that calls it.

    See `let_graph_own`.

    Args:
      function: maps tensors to (outputs, gradient function), as for
        tf.custom_gradient. AutoGraph does not convert it.
    """
    decorated = tf.custom_gradient(function)

    def call(*tensors):
        return let_graph_own(decorated(*tensors))

    functools.update_wrapper(call, function)
    # AutoGraph would follow it, and convert the function.
    del call.__wrapped__  # type: ignore[attr-defined]
    return tf.autograph.experimental.do_not_convert(call)


def let_graph_own(outputs):
    """Moves the gradient of a tf.custom_gradient from TensorFlow to its graph.

    TensorFlow registers the gradient of each call in a graph under a new name,
    for as long as the process lives. The gradient refers to the graph, which
    so is never freed, nor is what it captured: each training run of a process
    would leave its graph, weights and slots in memory. Returns the outputs of
    the call, nested tuples and lists of tensors.
    """
    if tf.executing_eagerly():
        return outputs
    first = tf.nest.flatten(outputs)[0]
    graph = first.graph
    try:
        name = first.op.get_attr("_gradient_op_type").decode()
    except ValueError:  # There is none.
        return outputs
    # The registry is private; tf.RegisterGradient only adds to it.
    entries = ops.gradient_registry._registry
    if not hasattr(graph, "owned_gradients"):
        graph.owned_gradients = {}
    graph.owned_gradients[name] = entries[name]["type"]
    find_graph = weakref.ref(graph)

    def differentiate(*arguments):
        owner: Any = find_graph()
        return owner.owned_gradients[name](*arguments)

    entries[name]["type"] = differentiate
    weakref.finalize(graph, entries.pop, name, None)
    return outputs
