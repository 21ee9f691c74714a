"""Builds a synchronous training graph of each kind and writes its nodes to sync_replicas.json.

    python testdata/training/make_sync_replicas.py

Needs TensorFlow 2.21. Each node is a list: name, op, device, inputs, and the attributes that say where state is shared
and beside which node it stands.
"""

import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sync_replicas.json")
CLUSTER = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]})


def build(resource, count_type):
    setter = tf.train.replica_device_setter(cluster=CLUSTER, worker_device="/job:worker/task:1")
    with tf.variable_scope("", use_resource=resource), tf.device(setter):
        step = tf.Variable(0, name="global_step", trainable=False, dtype=count_type, use_resource=resource)
        w = tf.get_variable("w", [4, 3], initializer=tf.zeros_initializer())
        table = tf.get_variable("table", [5, 3], initializer=tf.zeros_initializer())
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        ids = tf.placeholder(tf.int32, [None], name="ids")
        loss = tf.reduce_sum(tf.matmul(x, w)) + tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=2, total_num_replicas=3
        )
        first = len(tf.get_default_graph().get_operations())
        train = optimizer.minimize(loss, global_step=step)
        tokens = optimizer.get_init_tokens_op()
    ops = {
        "train": train.op.name if hasattr(train, "op") else train.name,
        "init_tokens": tokens.name,
        "chief_init": optimizer.chief_init_op.name,
        "local_step_init": getattr(optimizer.local_step_init_op, "op", optimizer.local_step_init_op).name,
        "hand_out": optimizer.get_chief_queue_runner().enqueue_ops[0].name,
    }
    nodes = [node(n) for n in tf.get_default_graph().get_operations()[first:]]
    skipped = ("gradients/", "report_uninitialized_variables/")
    return {"ops": ops, "nodes": [n for n in nodes if not n[0].startswith(skipped)]}


def node(op):
    d = op.node_def
    attrs = {k: d.attr[k].s.decode() for k in ("shared_name",) if k in d.attr and d.attr[k].s}
    if "_class" in d.attr:
        attrs["_class"] = d.attr["_class"].list.s[0].decode()
    return [d.name, d.op, d.device, list(d.input), attrs]


def main():
    cases = []
    for resource, count_type in [(False, tf.int64), (True, tf.int64), (False, tf.int32)]:
        with tf.Graph().as_default():
            kind = "resource" if resource else "reference"
            cases.append({"name": f"{kind} variables, {count_type.name}", "resource": resource, "step": count_type.name})
            cases[-1].update(build(resource, count_type))
    with open(PATH, "w") as file:
        json.dump({"cases": cases}, file, indent=1)
        file.write("\n")


main()
