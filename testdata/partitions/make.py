"""Makes the graphs in this folder with TensorFlow 2.21, and what its master and workers made of them.

    python make.py [FOLDER]

`NAME.graph.pb` is a client's GraphDef: its nodes `fetch_*` were fetched and its nodes `target_*` were run, in one step on two
tasks of jobs `ps` and `worker` with two CPUs each, by the master of the second worker. `NAME.parts.pb` is the RunMetadata
of that step, with one partition graph per device. Optimisers are off, so that placing and cutting alone are seen.
"""

import os
import socket
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()

PS0, PS1, WORKER0, WORKER1 = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0", "/job:worker/task:1"


def fetch(value, name):
    """Where it is fetched from is left open."""
    with v1.device(None):
        tf.identity(value, name="fetch_" + name)


def training(use_resource):
    """Variables spread over ps tasks, everything else on a worker, and an optimizer."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device=WORKER0)):
        x = v1.random_uniform([4, 3], seed=1)
        w = v1.get_variable("w", [3, 2], use_resource=use_resource, initializer=v1.ones_initializer())
        b = v1.get_variable("b", [2], use_resource=use_resource, initializer=v1.zeros_initializer())
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b))
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=step)
        v1.group(train, name="target_train")
        v1.group(v1.global_variables_initializer(), name="init")
    fetch(loss, "loss")


def constants_and_shapes():
    with v1.device(PS0):
        a = tf.square(tf.constant([1.0, 2.0]), name="a")
    with v1.device(PS1 + "/cpu:1"):
        b = a + tf.constant(1.0)
        c = v1.raw_ops.Shape(input=b)
    loose = tf.constant(3.0, name="loose")
    with v1.device(WORKER0):
        d = loose * b
    with v1.device(WORKER0 + "/cpu:1"):
        e = loose - b
    fetch(d, "d")
    fetch(e, "e")
    fetch(c, "c")
    fetch(v1.raw_ops.Size(input=b), "size")


def signals():
    with v1.device(PS0):
        a = tf.no_op(name="a")
    with v1.device(WORKER0), v1.control_dependencies([a]):
        b = tf.constant(1.0, name="b")
        c = tf.no_op(name="c")
    with v1.device(WORKER0 + "/cpu:1"), v1.control_dependencies([a, c]):
        d = tf.no_op(name="d")
    with v1.device(PS1), v1.control_dependencies([d, b]):
        tf.no_op(name="target_all")
    fetch(b, "b")


def handles():
    with v1.device(PS0):
        h = v1.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="h", name="h")
        q = v1.raw_ops.FIFOQueueV2(component_types=[tf.float32], shapes=[[]], capacity=3, shared_name="q")
    with v1.device(WORKER0):
        init = v1.raw_ops.AssignVariableOp(resource=h, value=tf.square(tf.constant(2.0)))
        with v1.control_dependencies([init]):
            r = v1.raw_ops.ReadVariableOp(resource=h, dtype=tf.float32)
        put = v1.raw_ops.QueueEnqueueV2(handle=q, components=[r * 2.0])
    with v1.device(WORKER1), v1.control_dependencies([put]):
        fetch(v1.raw_ops.QueueDequeueV2(handle=q, component_types=[tf.float32])[0], "element")


def branch():
    with v1.device(WORKER0):
        p = v1.placeholder_with_default(True, [])
        x = tf.constant(2.0)

        def then():
            with v1.device(PS0):
                return tf.negative(x) * 3.0

        def otherwise():
            with v1.device(PS1 + "/cpu:1"):
                return x + 1.0

        y = v1.cond(p, then, otherwise)
    fetch(y, "y")


def loop(place):
    k = tf.constant(3.0, name="k")

    def body(i, x):
        with v1.device(place):
            y = x * k
        return i + 1, y + 1.0

    with v1.device(WORKER1):
        i, x = v1.while_loop(lambda i, x: i < 3, body, [tf.constant(0), tf.constant(1.0)])
    fetch(i, "i")
    fetch(x, "x")


def nested_loop():
    def inner(j, y):
        with v1.device(PS0):
            return j + 1, y + 1.0

    def body(i, x):
        with v1.device(WORKER1):
            limit = i + 1
        _, y = v1.while_loop(lambda j, y: j < limit, inner, [0, x])
        return i + 1, y

    with v1.device(WORKER1):
        i, x = v1.while_loop(lambda i, x: i < 3, body, [0, 1.0])
    fetch(x, "x")


CASES = {
    "training_reference": lambda: training(False),
    "training_resource": lambda: training(True),
    "constants_and_shapes": constants_and_shapes,
    "signals": signals,
    "handles": handles,
    "branch": branch,
    "loop_over_tasks": lambda: loop(PS0),
    "loop_over_devices": lambda: loop(WORKER1 + "/cpu:1"),
    "nested_loop": nested_loop,
}


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    jobs = ["ps", "worker"]
    cluster = tf.train.ClusterSpec({job: ["localhost:%d" % free_port() for _ in range(2)] for job in jobs})
    two = v1.ConfigProto(device_count={"CPU": 2})
    servers = {(job, i): v1.train.Server(cluster, job_name=job, task_index=i, config=two) for job in jobs for i in range(2)}
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    for name, build in CASES.items():
        v1.disable_control_flow_v2()
        with tf.Graph().as_default() as graph:
            build()
            wanted = [op for op in graph.get_operations() if op.name.startswith(("fetch_", "target_"))]
            fetches = [op.outputs[0] if op.outputs else op for op in wanted]
            metadata = v1.RunMetadata()
            options = v1.RunOptions(output_partition_graphs=True)
            with v1.Session(servers["worker", 1].target, graph=graph, config=config) as session:
                if "init" in [op.name for op in graph.get_operations()]:
                    session.run("init")
                print(name, session.run(fetches, options=options, run_metadata=metadata))
            parts = v1.RunMetadata()
            for part in sorted(metadata.partition_graphs, key=lambda part: part.node[0].device):
                kept = parts.partition_graphs.add()
                kept.node.extend(part.node)
                for node in kept.node:
                    node.attr.pop("send_device_incarnation", None)
            for suffix, message in [("graph", graph.as_graph_def()), ("parts", parts)]:
                with open(os.path.join(folder, "%s.%s.pb" % (name, suffix)), "wb") as f:
                    f.write(message.SerializeToString(deterministic=True))
    os._exit(0)


if __name__ == "__main__":
    main()
