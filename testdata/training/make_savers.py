"""Builds small graphs with a saver and writes them as MetaGraphDefs into savers/, and a checkpoint of each.

    python testdata/training/make_savers.py

Needs TensorFlow 2.21. Node names, devices, collections and files are TensorFlow's own.
"""

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


def main():
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
