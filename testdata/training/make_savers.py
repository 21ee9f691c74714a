"""Builds small graphs with a saver and writes them as MetaGraphDefs into savers/; asks partitioners for their partitions
and trains a partitioned table, and writes the numbers to partitions.json.

    python testdata/training/make_savers.py

Needs TensorFlow 2.21. Node names, devices, collections and files are TensorFlow's own.
"""

import json
import os
import shutil

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "savers")


def variables(resource):
    b = tf.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="b", use_resource=resource)
    with tf.device("/job:ps/task:0"):
        a = tf.Variable([1.5, -2.0], name="a", use_resource=resource)
    with tf.device("/job:ps/task:1"):
        c = tf.Variable(["x", "yz"], name="c", trainable=False, use_resource=resource)
    return [a, b, c]


def partitioned(resource):
    tf.Variable([1, 2, 3], name="a", use_resource=resource)
    with tf.device("/job:ps/task:1"):
        tf.get_variable(
            "b", [7, 2], initializer=tf.zeros_initializer(), use_resource=resource,
            partitioner=tf.fixed_size_partitioner(3),
        )


def whole(resource):
    variables(resource)
    return tf.train.Saver()


def sharded(resource):
    variables(resource)
    with tf.device("/job:worker"):
        return tf.train.Saver(sharded=True, max_to_keep=3, keep_checkpoint_every_n_hours=2.5)


def in_parts(resource):
    partitioned(resource)
    return tf.train.Saver()


def in_parts_sharded(resource):
    partitioned(resource)
    return tf.train.Saver(sharded=True)


def partitioners():
    cases = []
    for shape in [[7, 2], [1, 5], [10], [100, 3, 2], [3, 1000]]:
        for name, dtype in [("float", tf.float32), ("string", tf.string), ("double", tf.float64)]:
            for axis in range(len(shape)):
                made = [("fixed_size", [n], tf.fixed_size_partitioner(n, axis)) for n in [1, 3, 200]]
                for size in [1, 16, 100, 4096]:
                    made.append(("axis_size", [size], tf.variable_axis_size_partitioner(size, axis)))
                    made.append(("axis_size", [size, 2], tf.variable_axis_size_partitioner(size, axis, max_shards=2)))
                for most, least in [(4, 64), (4, 100000), (1000, 8)]:
                    made.append(("min_max", [most, least], tf.min_max_variable_partitioner(most, axis, least)))
                for kind, args, partitioner in made:
                    partitions = partitioner(shape=tf.TensorShape(shape), dtype=dtype)
                    cases.append({
                        "kind": kind, "args": args, "axis": axis, "shape": shape, "dtype": name,
                        "partitions": [int(n) for n in partitions],
                    })
    return cases


def lookups():
    """Three steps of Adagrad on rows of a table in parts, looked up either way."""
    ids = [[0, 3], [6, 3], [5, 1]]
    cases = []
    for strategy in ["mod", "div"]:
        for count in [1, 2, 3]:
            with tf.Graph().as_default(), tf.Session() as session:
                whole = [[float(10 * row + column) for column in range(2)] for row in range(7)]
                table = tf.get_variable(
                    "table", initializer=tf.constant(whole), partitioner=tf.fixed_size_partitioner(count)
                )
                rows = tf.nn.embedding_lookup(table, ids, partition_strategy=strategy)
                train = tf.train.AdagradOptimizer(0.5).minimize(tf.reduce_sum(tf.square(rows)))
                session.run(tf.global_variables_initializer())
                found = session.run(rows).tolist()
                for _ in range(3):
                    session.run(train)
                after = session.run(tf.convert_to_tensor(table)).tolist()
            cases.append({
                "name": f"{strategy} {count}", "strategy": strategy, "parts": count, "ids": ids, "initial": whole,
                "rows": found, "after": after,
            })
    return cases


def main():
    with open(os.path.join(os.path.dirname(FOLDER), "partitions.json"), "w") as out:
        lines = lambda cases: ",\n".join(json.dumps(case, sort_keys=True) for case in cases)
        out.write('{"cases": [\n' + lines(lookups()) + '\n],\n"partitioners": [\n' + lines(partitioners()) + "\n]}\n")
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    for build in [whole, sharded, in_parts, in_parts_sharded]:
        for resource in [False, True]:
            name = f"{build.__name__}_{'resource' if resource else 'reference'}.meta"
            with tf.Graph().as_default():
                tf.train.create_global_step() if build is whole else None
                saver = build(resource)
                meta = saver.export_meta_graph(clear_extraneous_savers=False)
                meta.meta_info_def.ClearField("stripped_op_list")
                meta.meta_info_def.ClearField("tensorflow_git_version")
                with open(os.path.join(FOLDER, name), "wb") as out:
                    out.write(meta.SerializeToString(deterministic=True))


main()
