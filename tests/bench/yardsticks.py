"""What the machine itself can do: copying memory, multiplying matrices, and bytes and round trips over loopback TCP."""

import socket
import threading
import time

import numpy as np

CHUNK = 1 << 20


def measure():
    """Name, value and unit of each."""
    return [
        ("copying memory, one thread", memcpy(), "GB/s"),
        ("product of matrices of 1024 rows, NumPy", matrix_product(), "GFLOP/s"),
        ("loopback TCP, one stream", stream(), "GB/s"),
        ("loopback TCP, round trip of 64 bytes", round_trip() * 1e6, "µs"),
    ]


def memcpy(size=64 << 20):
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    np.copyto(target, source)
    return size / fastest(lambda: np.copyto(target, source), 10) / 1e9


def matrix_product(size=1024):
    a, b = np.ones((2, size, size), np.float32)
    out = np.empty_like(a)
    return 2 * size**3 / fastest(lambda: np.matmul(a, b, out=out), 20) / 1e9


def stream(size=1 << 30):
    def take(connection):
        buffer = bytearray(CHUNK)
        while connection.recv_into(buffer):
            pass
        connection.sendall(b".")

    def once():
        with Peer(take) as s:
            for _ in range(size // CHUNK):
                s.sendall(bytes(CHUNK))
            s.shutdown(socket.SHUT_WR)
            s.recv(1)

    return size / fastest(once, 3) / 1e9


def round_trip():
    def echo(connection):
        while received := connection.recv(64):
            connection.sendall(received)

    with Peer(echo) as s:
        def once():
            s.sendall(bytes(64))
            s.recv(64)

        return fastest(once, 2000)


def fastest(call, times):
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


class Peer:
    """A connection to a thread that does `serve` with its end of it."""

    def __init__(self, serve):
        listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=lambda: serve(self.configured(listener.accept()[0])), daemon=True)
        self.thread.start()
        self.socket = self.configured(socket.create_connection(listener.getsockname()))

    @staticmethod
    def configured(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def __enter__(self):
        return self.socket

    def __exit__(self, *_):
        self.socket.close()
