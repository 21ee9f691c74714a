"""Lets peers misbehave towards one of our servers while a stock TensorFlow client works on it.

    python tests/interop/bad_peers.py [NAME ...]      # all peers, or those whose names contain one of these

After each peer the client must still get its answers, quickly, and when all are gone the server's memory must be back
where it was. Needs a Python with TensorFlow, and cargo. Prints a line per peer; exits with 1 if anything went wrong.
"""

import os
import resource
import socket
import subprocess
import sys
import threading
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import grpc
import numpy as np
import tensorflow.compat.v1 as tf

from clusters import ROOT, built

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
MASTER, WORKER = "/tensorflow.MasterService/", "/tensorflow.WorkerService/"
# What may be kept for good: threads' stacks, tables that grew, pages the allocator did not return.
KEPT_MAX = 64 << 20


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def message(**fields):
    """A message, of the fields that are given as `f` and their number: text, bytes or small numbers."""
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, int):
            out += bytes([number << 3, value])
            continue
        value = value.encode() if isinstance(value, str) else value
        length, size = b"", len(value)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        out += bytes([number << 3 | 2]) + length + bytes([size]) + value
    return out


class Server:
    """One task of ours, alone."""

    def __init__(self):
        free = socket.socket()
        free.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % free.getsockname()[1]
        free.close()
        self.process = self.start(self.address)
        while not self.is_up():
            assert self.process.poll() is None, "the server did not start"
            time.sleep(0.02)

    def start(self, address, task=0):
        command = [built("ferroflow"), "--log", "error", "server", "--cluster", "local|" + address]
        return subprocess.Popen(command + ["--job-name", "local", "--task-index", str(task)], stderr=subprocess.PIPE)

    def is_up(self):
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def connect(self):
        host, port = self.address.split(":")
        return socket.create_connection((host, int(port)), 10)

    def say(self, *messages):
        """Opens a connection, says something, and leaves it open."""
        connection = self.connect()
        for message in messages:
            connection.sendall(message)
        return connection

    def channel(self):
        return grpc.insecure_channel(self.address, [("grpc.use_local_subchannel_pool", 1)])

    def call(self, channel, method, request, timeout=60):
        """The status code of a call."""
        try:
            channel.unary_unary(method)(request, timeout=timeout)
            return grpc.StatusCode.OK
        except grpc.RpcError as e:
            return e.code()

    def create_session(self, channel, graph):
        """The handle of a new session."""
        answer = channel.unary_unary(MASTER + "CreateSession")(message(f1=graph.SerializeToString()), timeout=60)
        return answer[2 : 2 + answer[1]]

    def close_session(self, channel, handle):
        assert self.call(channel, MASTER + "CloseSession", message(f1=handle)) == grpc.StatusCode.OK

    def resident(self):
        with open("/proc/%d/statm" % self.process.pid) as f:
            return int(f.read().split()[1]) * resource.getpagesize()


class SoundClient(threading.Thread):
    """Runs steps of a stock client, one after the other, and notes how long each took."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.times, self.failure, self.ends = [], None, False
        self.graph = tf.Graph()
        with self.graph.as_default():
            x = tf.placeholder(tf.float32, [None])
            v = tf.Variable(1.0, use_resource=True)
            self.feed, self.sum, self.init = x, tf.reduce_sum(x * v), v.initializer
        self.session = tf.Session("grpc://" + server.address, graph=self.graph)
        self.session.run(self.init)

    def run(self):
        value = np.ones(1000, np.float32)
        while not self.ends:
            started = time.time()
            try:
                assert self.session.run(self.sum, {self.feed: value}) == 1000
            except Exception as e:
                self.failure = e
                return
            self.times.append(time.time() - started)
            time.sleep(0.002)

    def slowest(self, since):
        """The time that one in a hundred steps exceeds, and how many there were."""
        times = sorted(self.times[since:])
        return times[len(times) * 99 // 100] if times else float("inf")


def hangs_up(connection, within=30):
    connection.settimeout(within)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    connection.close()


def random_bytes(server):
    noise = np.random.RandomState(1)
    for connection in [server.say(b"" if i % 2 else PREFACE, noise.bytes(2000)) for i in range(100)]:
        hangs_up(connection)


def http_of_the_first_kind(server):
    for _ in range(100):
        hangs_up(server.say(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))


def broken_frames(server):
    cases = [
        frame(0, 0, 0, b"x"),
        frame(1, 4, 2, b"\x83\x84\x86"),
        frame(9, 4, 1, b"\x83"),
        frame(1, 4, 1, b"\xff\xff\xff\x7f"),
        frame(4, 0, 0, b"12345"),
        frame(6, 0, 0, b"1234567"),
        frame(8, 0, 0, bytes(4)),
        b"\xff\xff\xff\0\0\0\0\0\1",
    ]
    for case in cases * 10:
        hangs_up(server.say(PREFACE, case))


def garbage_messages(server):
    noise = np.random.RandomState(2)
    channel = server.channel()
    methods = [MASTER + m for m in "CreateSession ExtendSession RunStep MakeCallable RunCallable ListDevices Reset".split()]
    methods += [WORKER + m for m in "GetStatus CreateWorkerSession RegisterGraph RunGraph RecvTensor CleanupGraph".split()]
    for method in methods:
        for size in [1, 10, 100, 10000]:
            code = server.call(channel, method, noise.bytes(size))
            assert code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), (method, code)
    channel.close()


def unknown_handles(server):
    channel = server.channel()
    aborted = grpc.StatusCode.ABORTED
    calls = [
        (MASTER + "ExtendSession", message(f1="none"), aborted),
        (MASTER + "RunStep", message(f1="none", f3="a:0"), aborted),
        (MASTER + "CloseSession", message(f1="none"), aborted),
        (MASTER + "RunCallable", message(f1="none", f2=7), aborted),
        (WORKER + "RunGraph", message(f8="none", f10=1), aborted),
        (WORKER + "RunGraph", message(f1="none"), aborted),
        (WORKER + "RecvTensor", message(f2="none"), grpc.StatusCode.INVALID_ARGUMENT),
    ]
    for method, request, wanted in calls * 20:
        found = server.call(channel, method, request)
        assert found == wanted, "%s gives %s, wanted %s" % (method, found, wanted)
    channel.close()


def half_a_gigabyte_of_garbage(server):
    channel = server.channel()
    garbage = np.random.RandomState(3).bytes(1 << 20) * 512
    for method in [MASTER + "CreateSession", MASTER + "RunStep", WORKER + "RegisterGraph"]:
        code = server.call(channel, method, garbage, 300)
        assert code == grpc.StatusCode.INVALID_ARGUMENT, code
    channel.close()


def a_thousand_idle_connections(server):
    before = server.resident()
    idle = [server.say(PREFACE) for _ in range(1000)]
    for connection in idle:
        connection.recv(100)  # the server's settings: it has seen the connection
    each = (server.resident() - before) // len(idle)
    assert each <= 64 << 10, "%d bytes for each connection" % each
    for connection in idle:
        connection.close()
    return "%d KiB each" % (each >> 10)


def clients_that_vanish_in_a_step(server):
    with tf.Graph().as_default() as graph:
        tf.FIFOQueue(1, [tf.float32], name="q").dequeue(name="get")
    channel = server.channel()
    handle = server.create_session(channel, graph.as_graph_def())
    step = message(f1=handle, f3="get:0")
    for _ in range(100):
        vanishing = server.channel()
        calls = [vanishing.unary_unary(MASTER + "RunStep").future(step) for _ in range(5)]
        time.sleep(0.01)
        vanishing.close()
        del calls
    status = subprocess.check_output([built("ferroflow"), "status", server.address], text=True)
    deadline = time.time() + 4
    while "QueueDequeue" in status:
        assert time.time() < deadline, "steps of clients that are gone: " + status
        status = subprocess.check_output([built("ferroflow"), "status", server.address], text=True)
    server.close_session(channel, handle)
    channel.close()


def graphs_that_explode(server):
    """A constant of a terabyte; a circle; functions that call each other twice, forty deep; a chain of 50,000 nodes."""
    functions = tf.GraphDef()
    for i in range(40):
        f = functions.library.function.add()
        f.signature.name = "f%d" % i
        f.signature.input_arg.add(name="x", type=1)
        f.signature.output_arg.add(name="y", type=1)
        inner = "f%d" % (i + 1) if i < 39 else "Neg"
        out = ":y:0"
        for name, source in [("a", "x"), ("b", "a" + out)]:
            node = f.node_def.add(name=name, op=inner, input=[source])
            if inner == "Neg":
                node.attr["T"].type = 1
        f.ret["y"] = "b" + out
    start = functions.node.add(name="start", op="Placeholder")
    start.attr["dtype"].type = 1
    functions.node.add(name="bomb", op="f0", input=["start"])
    constant = tf.GraphDef()
    node = constant.node.add(name="c", op="Const")
    node.attr["dtype"].type = 1
    node.attr["value"].tensor.dtype = 1
    node.attr["value"].tensor.tensor_shape.dim.add(size=1 << 38)
    node.attr["value"].tensor.float_val.append(1.0)
    circle = tf.GraphDef()
    for name, other in [("a", "b"), ("b", "a")]:
        node = circle.node.add(name=name, op="Neg", input=[other])
        node.attr["T"].type = 1
    chain = tf.GraphDef()
    node = chain.node.add(name="n0", op="Placeholder")
    node.attr["dtype"].type = 1
    for i in range(50000):
        node = chain.node.add(name="n%d" % (i + 1), op="Neg", input=["n%d" % i])
        node.attr["T"].type = 1
    channel = server.channel()
    for name, graph in [("constant", constant), ("circle", circle)]:
        code = server.call(channel, MASTER + "CreateSession", message(f1=graph.SerializeToString()))
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED), (name, code)
    # Such functions are not put in place of their calls; whoever runs them has a deadline.
    handle = server.create_session(channel, functions)
    step = message(f1=handle, f2=message(f1="start:0", f2=bytes([8, 1, 42, 4, 0, 0, 128, 63])), f3="bomb:0")
    code = server.call(channel, MASTER + "RunStep", step, 2)
    assert code != grpc.StatusCode.OK, code
    server.close_session(channel, handle)
    server.close_session(channel, server.create_session(channel, chain))
    channel.close()


def a_second_server_of_the_same_task(server):
    started = time.time()
    second = server.start(server.address)
    _, complaint = second.communicate(timeout=20)
    assert second.returncode != 0 and ("process %d" % server.process.pid) in complaint.decode(), complaint
    return "refused after %.2f s" % (time.time() - started)


def slow_ones(server):
    """Each stops in another phase: in the preface, within a frame, within headers."""
    stops = [PREFACE[:10], PREFACE + b"\0\0\x10", PREFACE + frame(1, 0, 1, b"\x83")]
    slow = [server.say(stop) for stop in stops * 30]
    started = time.time()
    for connection in slow:
        hangs_up(connection)
    took = time.time() - started
    assert took < 15, "given up after %.1f s" % took
    return "given up after %.1f s" % took


def floods(server):
    call = lambda i: frame(1, 4, i, b"\x83\x84\x86")
    reset = lambda i: call(i) + frame(3, 0, i, bytes([0, 0, 0, 8]))
    kinds = [
        b"".join(reset(i) for i in range(1, 60001, 2)),
        frame(6, 0, 0, bytes(8)) * 100000,
        frame(8, 0, 0, bytes([0, 0, 0, 1])) * 100000,
        frame(4, 0, 0, bytes([0, 4, 0, 1, 0, 0])) * 50000,
    ]
    for flood in kinds:
        connection = server.say(PREFACE)
        connection.settimeout(5)
        try:
            connection.sendall(flood)
        except OSError:
            pass  # it was hung up on, or nobody listens any more
        connection.close()


PEERS = [
    random_bytes,
    http_of_the_first_kind,
    broken_frames,
    garbage_messages,
    unknown_handles,
    half_a_gigabyte_of_garbage,
    a_thousand_idle_connections,
    clients_that_vanish_in_a_step,
    graphs_that_explode,
    a_second_server_of_the_same_task,
    slow_ones,
    floods,
]


def check(peer, server, client):
    first, started = len(client.times), time.time()
    note = peer(server) or ""
    deadline = time.time() + 10
    seen = len(client.times)
    while len(client.times) < seen + 3:
        assert client.failure is None, "the sound client failed: %s" % client.failure
        assert time.time() < deadline, "the sound client gets no answer"
        time.sleep(0.01)
    print(
        "ok     %-36s %5.1f s; the client's p99 %4.0f ms in %d steps; %d MB; %s"
        % (peer.__name__, time.time() - started, client.slowest(first) * 1e3, len(client.times) - first, server.resident() >> 20, note),
        flush=True,
    )


def main():
    tf.disable_eager_execution()
    tf.logging.set_verbosity(tf.logging.ERROR)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    subprocess.check_call(["cargo", "build", "--quiet", "-p", "ferroflow-cli"], cwd=ROOT)
    peers = [p for p in PEERS if not sys.argv[1:] or any(name in p.__name__ for name in sys.argv[1:])]
    server = Server()
    failed = 0
    try:
        client = SoundClient(server)
        client.start()
        time.sleep(1)
        before = server.resident()
        print("       alone: the client's p99 %.0f ms; %d MB" % (client.slowest(0) * 1e3, before >> 20))
        for peer in peers:
            try:
                check(peer, server, client)
            except Exception as e:
                failed += 1
                print("FAILED %s: %s: %s" % (peer.__name__, type(e).__name__, str(e)[:1000]), flush=True)
        client.ends = True
        client.join(20)
        deadline = time.time() + 10
        while server.resident() > before + KEPT_MAX and time.time() < deadline:
            time.sleep(0.1)
        kept = server.resident() - before
        assert server.process.poll() is None, "the server is gone"
        print("       afterwards %d MB more than before" % (kept >> 20))
        failed += kept > KEPT_MAX
    finally:
        server.process.kill()
        server.process.wait()
    print("%d of %d peers did harm" % (failed, len(peers)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
