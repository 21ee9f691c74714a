"""Dilated convolutions and their gradients: conv_dilated. Only TensorFlow's oneDNN kernels have the gradients."""
import os

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
from golden import *  # noqa: E402


def main():
  f = File(__file__, "conv_dilated.json")

  def all_three(what, image, kernel, **attrs):
    fwd, back_filter, back_input = "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"
    attrs = dict({"strides": [1, 1, 1, 1]}, **attrs)
    x, w = rnd(what + "x", "float", image, -1, 1), rnd(what + "w", "float", kernel)
    before = len(f.cases)
    f.case("%s dilated, %s" % (fwd, what), fwd, [x, w], attrs)
    if len(f.cases) == before:
      return
    dy = rnd(what + "dy", "float", f.cases[-1]["outputs"][0]["shape"])
    f.case("%s dilated, %s" % (back_filter, what), back_filter, [x, i32(kernel), dy], attrs, grad=False)
    f.case("%s dilated, %s" % (back_input, what), back_input, [i32(image), w, dy], attrs, grad=False)

  all_three("unpadded", [1, 5, 5, 1], [2, 2, 1, 2], dilations=[1, 2, 2, 1], padding="VALID")
  all_three("padded", [1, 5, 4, 2], [3, 2, 2, 1], dilations=[1, 2, 1, 1], padding="SAME")
  all_three("padded by two and three", [1, 5, 5, 1], [2, 2, 1, 2], dilations=[1, 2, 3, 1], padding="SAME")
  f.write()


if __name__ == "__main__":
  main()
