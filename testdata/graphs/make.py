"""Makes the graphs in this folder with TensorFlow 2.21: binary GraphDefs of classic programs.

    python make.py [FOLDER]

The names of the files say what is in them; nodes come in the order in which TensorFlow made them.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from tensorflow.python.framework import function

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.disable_resource_variables()
v1.disable_control_flow_v2()


def mlp():
    """A classifier with reference variables, an optimizer, summaries' worth of names and a saver."""
    with v1.device("/job:ps/task:0"):
        w1 = v1.get_variable("hidden/w", [4, 3], initializer=v1.truncated_normal_initializer(stddev=0.1, seed=1))
        b1 = v1.get_variable("hidden/b", [3], initializer=v1.zeros_initializer())
        w2 = v1.get_variable("out/w", [3, 2], initializer=v1.glorot_uniform_initializer(seed=2))
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    labels = v1.placeholder(tf.int64, [None], name="labels")
    hidden = tf.nn.relu(tf.matmul(x, w1) + b1)
    logits = tf.matmul(hidden, w2, name="logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), name="loss")
    step = v1.train.get_or_create_global_step()
    v1.train.AdamOptimizer(0.01).minimize(loss, global_step=step, name="train")
    v1.global_variables_initializer()
    v1.train.Saver(max_to_keep=2)


def control_flow():
    """A conditional and a loop of the first kind: Switch, Merge, Enter, Exit, NextIteration."""
    x = v1.placeholder(tf.float32, [], name="x")
    chosen = v1.cond(x > 0, lambda: x * 2, lambda: x - 1)
    i = tf.constant(0)
    v1.while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t * chosen), [i, tf.constant(1.0)], name="loop")
    a = v1.get_variable("table", [5, 2], use_resource=True, initializer=v1.zeros_initializer())
    tf.nn.embedding_lookup(a, [1, 3])


def functions():
    """A function library with a function that calls another, and nodes that call both by name."""

    @function.Defun(tf.float32, func_name="square")
    def square(x):
        return x * x

    @function.Defun(tf.float32, tf.float32, func_name="distance")
    def distance(x, y):
        return tf.sqrt(square(x - y), name="root")

    x = v1.placeholder(tf.float32, [2], name="x")
    squared = square(x, name="squared")
    with v1.device("/device:CPU:0"):
        tf.identity(distance(x, squared, name="far"), name="copy")


def queues():
    """A queue with a runner's ops, strings, and colocation."""
    q = tf.queue.RandomShuffleQueue(10, 2, [tf.string, tf.int32], [[], [2]], seed=7, name="q")
    q.enqueue((tf.constant("a\0b"), tf.constant([1, 2])))
    one, two = q.dequeue(name="get")
    with v1.colocate_with(two.op):
        tf.add(two, two, name="double")
    q.close(cancel_pending_enqueues=True)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for build in [mlp, control_flow, functions, queues]:
        with tf.Graph().as_default() as graph:
            build()
            message = graph.as_graph_def(add_shapes=build is mlp)
        path = os.path.join(folder, build.__name__ + ".pb")
        with open(path, "wb") as f:
            f.write(message.SerializeToString(deterministic=True))
        print(f"{path}: {len(message.node)} nodes, {len(message.library.function)} functions")


main()
