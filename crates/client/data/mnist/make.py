"""Makes the small MNIST that is compiled in, from the four files of the whole one.

    python make.py FOLDER_WITH_THE_FOUR_FILES [FOLDER_TO_WRITE_TO]

Training digits: first 2,000 at equal distances, to validate with, then the 13,000 others that a network like that of the
examples is least sure of when it has not been trained on them, without the 100 worst, many of which bear a wrong label.
Test digits: every fifth. All are as they were, and each group is in their order. Needs numpy and zopfli, which makes the
files a twentieth smaller than gzip does.
"""

import gzip
import os
import sys

import numpy as np
import zopfli.gzip

VALIDATION, HARD, LEFT_OUT, FOLDS = 2000, 13000, 100, 4


def read(folder, name):
    with gzip.open(os.path.join(folder, name + ".gz")) as f:
        data = f.read()
    rank = data[3]
    shape = np.frombuffer(data, ">u4", rank, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def write(folder, name, values):
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    with open(os.path.join(folder, name + ".gz"), "wb") as f:
        f.write(zopfli.gzip.compress(header + values.tobytes()))


class Network:
    """One hidden layer, trained by Adam."""

    def __init__(self, seed, hidden=100):
        self.random = np.random.default_rng(seed)
        normal = lambda *shape: self.random.normal(0, 1, shape).astype(np.float32)
        zeros = lambda *shape: np.zeros(shape, np.float32)
        self.values = [normal(784, hidden) / 28, zeros(hidden), normal(hidden, 10) / 10, zeros(10)]
        self.moments = [(np.zeros_like(v), np.zeros_like(v)) for v in self.values]
        self.steps = 0

    def forward(self, x):
        w1, b1, w2, b2 = self.values
        hidden = np.maximum(x @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        e = np.exp(logits - logits.max(1, keepdims=True))
        return hidden, e / e.sum(1, keepdims=True)

    def step(self, x, y, rate=0.01):
        hidden, error = self.forward(x)
        error[np.arange(len(y)), y] -= 1
        back = (error @ self.values[2].T) * (hidden > 0)
        gradients = [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
        self.steps += 1
        rate *= np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for value, (m, v), g in zip(self.values, self.moments, gradients):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            value -= rate * m / (np.sqrt(v) + 1e-8)


def certainty(images, labels):
    """How sure networks are of each digit they have not seen, on average over the training."""
    x = images.reshape(-1, 784).astype(np.float32) / 255
    found = np.zeros(len(labels))
    for fold in range(FOLDS):
        held_out = np.arange(len(labels)) % FOLDS == fold
        seen, unseen = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        network = Network(fold)
        for step in range(1800):
            batch = network.random.choice(seen, 100, replace=False)
            network.step(x[batch], labels[batch])
            if step % 300 == 299:
                found[unseen] += network.forward(x[unseen])[1][np.arange(len(unseen)), labels[unseen]]
    return found


def main(source, target):
    images, labels = read(source, "train-images-idx3-ubyte"), read(source, "train-labels-idx1-ubyte")
    validation = np.arange(0, len(labels), len(labels) // VALIDATION)
    order = np.argsort(certainty(images, labels), kind="stable")
    order = order[~np.isin(order, validation)]
    chosen = np.concatenate([validation, np.sort(order[LEFT_OUT : LEFT_OUT + HARD])])
    write(target, "train-images-idx3-ubyte", images[chosen])
    write(target, "train-labels-idx1-ubyte", labels[chosen])
    for name in ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]:
        write(target, name, read(source, name)[::5])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__)))
