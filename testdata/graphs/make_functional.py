"""Makes `functional.pb` with TensorFlow 2.21: programs made of functions, and what they give.

    python make_functional.py [FOLDER]

Each program is a name scope. What TensorFlow computed for its nodes `got_0`, `got_1`, ... stands beside them as constants
`want_0`, `want_1`, .... Some functions are on another task than those who call them: TensorFlow ran it on two.
"""

import os
import socket
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.enable_resource_variables()
v1.enable_control_flow_v2()

PS = "/job:ps/task:0"
WORKER = "/job:worker/task:0"


def given(value):
    """A value that nobody can know before the graph runs."""
    return v1.placeholder_with_default(tf.constant(value), [])


def variable(value):
    """A variable on the other task that has its value once what is returned with it has run."""
    with v1.device(PS):
        v = v1.get_variable(v1.get_default_graph().unique_name("v"), initializer=value, use_resource=True)
    return v, v.initializer


def calls():
    @tf.function
    def inner(x, y):
        return x * y + 1.0, x - y

    @tf.function
    def outer(x):
        a, b = inner(x, tf.constant(2.0))
        with v1.device(PS):
            c = inner(a, b)[0]
        return a, c, x

    a, c, x = outer(given(3.0))
    return [a, c, x, inner(a, c)[1]]


def branches():
    results = []
    for pred in [True, False]:
        x, p = given(5.0), given(pred)

        def then():
            with v1.device(PS):
                return x * 2.0, tf.constant(1)

        def otherwise():
            nested = tf.cond(x > 3.0, lambda: x + 0.25, lambda: x - 0.25)
            return nested, tf.constant(2)

        results += tf.cond(p, then, otherwise)
    return results


def effects():
    results = []
    for pred in [True, False]:
        v, init = variable(10.0)
        p = given(pred)
        with v1.control_dependencies([init]):
            p = tf.identity(p)
        chosen = tf.cond(p, lambda: v.assign_add(1.0).op, lambda: v.assign_sub(2.0).op)
        with v1.control_dependencies([chosen]):
            results.append(v.read_value())

    v, init = variable(1.0)

    @tf.function
    def twice(x):
        v.assign_add(x)
        v.assign_add(x)
        return tf.constant(7.0)

    with v1.control_dependencies([init]):
        done = twice(given(4.0))
    with v1.control_dependencies([done]):
        results += [done, v.read_value()]
    return results


def loops():
    x, k = given(1.0), given(3.0)

    def body(i, y):
        with v1.device(PS):
            z = y * k
        return i + 1, z + 1.0

    results = list(tf.while_loop(lambda i, y: i < 3, body, [tf.constant(0), x], parallel_iterations=4))

    def nested(i, y):
        _, y = tf.while_loop(lambda j, y: j < i, lambda j, y: (j + 1, tf.cond(y > 2.0, lambda: y + 1.0, lambda: y * 2.0)),
                             [tf.constant(0), y])
        return i + 1, y

    results += tf.while_loop(lambda i, y: i < 4, nested, [tf.constant(0), x])

    v, init = variable(0.0)

    def count(i, y):
        with v1.control_dependencies([v.assign_add(1.0)]):
            return i + 1, y + v.read_value()

    with v1.control_dependencies([init]):
        i, y = tf.while_loop(lambda i, y: i < 5, count, [tf.constant(0), x])
    with v1.control_dependencies([i]):
        results += [y, v.read_value()]

    grown = tf.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, tf.concat([t, t], 0)), [tf.constant(0), tf.reshape(x, [1])],
                          shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])])
    results.append(grown[1])
    never = tf.while_loop(lambda i: i < 0, lambda i: i + 1, [tf.constant(1)])
    results += [never[0] if isinstance(never, (list, tuple)) else never]
    return results


def cases():
    results = []
    for index in [0, 1, 2, 7, -1]:
        x = given(2.0)
        results.append(tf.switch_case(given(index), [lambda: x + 1.0, lambda: x * 10.0, lambda: tf.constant(0.5)]))
    return results


def together():
    """A loop whose body branches and calls, over two tasks."""

    @tf.function
    def halve(x):
        with v1.device(PS):
            return x / 2.0

    def body(i, x):
        x = tf.cond(x > 10.0, lambda: halve(x), lambda: tf.switch_case(i % 2, [lambda: x * 3.0, lambda: x + 1.0]))
        return i + 1, x

    return list(tf.while_loop(lambda i, x: i < 8, body, [tf.constant(0), given(1.5)]))


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    cluster = tf.train.ClusterSpec({job: ["localhost:%d" % free_port()] for job in ["ps", "worker"]})
    servers = [v1.train.Server(cluster, job_name=job, task_index=0) for job in ["ps", "worker"]]
    config = v1.ConfigProto()
    config.experimental.share_cluster_devices_in_session = True
    with tf.Graph().as_default() as graph:
        wanted = []
        for program in [calls, branches, effects, loops, cases, together]:
            with v1.name_scope(program.__name__) as scope, v1.device(WORKER):
                for i, got in enumerate(program()):
                    got = tf.identity(got, name="got_%d" % i)
                    with v1.Session(servers[1].target, graph=graph, config=config) as session:
                        wanted.append((scope, i, session.run(got)))
        for scope, i, value in wanted:
            tf.constant(value, name="%swant_%d" % (scope, i))
            print(scope, i, value)
        with open(os.path.join(folder, "functional.pb"), "wb") as f:
            f.write(graph.as_graph_def().SerializeToString(deterministic=True))
    os._exit(0)


if __name__ == "__main__":
    main()
