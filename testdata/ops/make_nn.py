"""Neural-network ops: nn (activations, losses, normalisation), conv, pool."""
from golden import *

NAN, INF = float("nan"), float("inf")


def nn():
  f = File(__file__, "nn.json")
  numbers = FLOATS + INTS
  special = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 30.0, -30.0, 80.0, -80.0, 1e-6, -1e-6]
  for op, types in [("Relu", numbers), ("LeakyRelu", FLOATS), ("Elu", FLOATS), ("Softplus", FLOATS)]:
    for d in types:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3], -3, 3)])
    f.case("%s of a scalar" % op, op, [f32(-0.5)])
    f.case("%s of nothing" % op, op, [f32([], [0, 2])])
    name = "%s of a long row" % op
    f.case(name, op, [rnd(name, "float", [21], -3, 3)])
    for d in ["float", "double"]:
      # TensorFlow's Elu loses its digits near zero.
      f.case("%s of special %s values" % (op, d), op, [t(d, special[:-2] if op == "Elu" else special)], grad=False)
  f.case("LeakyRelu with a slope of a half", "LeakyRelu", [f32([-2, -1, 0, 1])], {"alpha": 0.5})
  f.case("LeakyRelu with a slope of two", "LeakyRelu", [f32([-2, -1, 0, 1])], {"alpha": 2.0})
  for op, types in [("ReluGrad", numbers), ("LeakyReluGrad", FLOATS), ("EluGrad", FLOATS)]:
    for d in types:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name + "dy", d, [2, 4]), rnd(name, d, [2, 4], -3 if op != "EluGrad" else -0.9, 3)])
    f.case("%s at zero" % op, op, [f32([1, 2, 3]), f32([0.0, -0.0, 1])])
    f.case("%s of nothing" % op, op, [f32([], [0]), f32([], [0])])
  for op in ["ReluGrad", "EluGrad", "LeakyReluGrad"]:
    f.case("%s of shapes that differ" % op, op, [f32([1, 2, 3]), f32([1, 2])], error=True)

  for d in FLOATS + COMPLEX + INTS:
    name = "BiasAdd of %s" % d
    f.case(name, "BiasAdd", [rnd(name, d, [2, 3]), rnd(name + "b", d, [3])])
    name = "BiasAddGrad of %s" % d
    f.case(name, "BiasAddGrad", [rnd(name, d, [2, 3])])
  for shape in [[1, 2, 2, 3], [2, 2, 3], [1, 2, 1, 2, 3], [0, 3]]:
    name = "BiasAdd of %s" % shape
    f.case(name, "BiasAdd", [rnd(name, "float", shape), rnd(name + "b", "float", [3])])
    f.case("BiasAddGrad of %s" % shape, "BiasAddGrad", [rnd(name, "float", shape)])
  for shape in [[1, 3, 2, 2], [2, 3, 2], [1, 3, 2, 1, 2]]:
    name = "BiasAdd of %s channels second" % shape
    f.case(name, "BiasAdd", [rnd(name, "float", shape), rnd(name + "b", "float", [3])], {"data_format": "NCHW"})
    f.case("BiasAddGrad of %s channels second" % shape, "BiasAddGrad", [rnd(name, "float", shape)], {"data_format": "NCHW"})
  f.case("BiasAdd of a bias too long", "BiasAdd", [f32([[1, 2]]), f32([1, 2, 3])], error=True)
  f.case("BiasAdd of a vector", "BiasAdd", [f32([1, 2]), f32([1, 2])], error=True)
  f.case("BiasAdd of a bias matrix", "BiasAdd", [f32([[1, 2]]), f32([[1, 2]])], error=True)

  for op in ["Softmax", "LogSoftmax"]:
    for d in FLOATS:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3], -3, 3)])
    for shape in [[4], [2, 2, 3], [1, 2, 1, 2, 3], [3, 1], [1, 17]]:
      name = "%s of %s" % (op, shape)
      f.case(name, op, [rnd(name, "float", shape, -3, 3)])
    f.case("%s of large logits" % op, op, [f32([[1000, 1001, 999], [-1000, -1000, -1000], [88, 0, -88]])])
    f.case("%s of minus infinity" % op, op, [f32([[-INF, 0, 1]])], grad=False)
    f.case("%s of NaN" % op, op, [f32([[NAN, 0, 1], [0, 1, 2]])], grad=False)
    f.case("%s of nothing" % op, op, [f32([], [0, 3])])
    f.case("%s of a scalar" % op, op, [f32(1)], error=True)
  op = "SoftmaxCrossEntropyWithLogits"
  for d in FLOATS:
    name = "%s of %s" % (op, d)
    p = np.array([[0.2, 0.3, 0.5], [1, 0, 0]])
    f.case(name, op, [rnd(name, d, [2, 3], -3, 3), t(d, p)], dy=[0], tolerance=0.015 if d == "half" else None)  # sums in half
  name = "%s with a gradient for both outputs" % op
  f.case(name, op, [rnd(name, "float", [2, 3], -3, 3), f32([[0.2, 0.3, 0.5], [1, 0, 0]])])
  name = "%s with one row of labels for all" % op
  f.case(name, op, [rnd(name, "float", [2, 3], -3, 3), f32([[0.2, 0.3, 0.5]])], grad=False)
  name = "%s with one row of logits for all" % op
  f.case(name, op, [rnd(name, "float", [1, 3], -3, 3), f32([[0.2, 0.3, 0.5], [1, 0, 0]])], grad=False)
  f.case("%s of large logits" % op, op, [f32([[1000, 0, -1000], [0, 500, 0]]), f32([[1, 0, 0], [1, 0, 0]])], dy=[0])
  f.case("%s of nothing" % op, op, [f32([], [0, 3]), f32([], [0, 3])], dy=[0])
  f.case("%s of shapes that differ" % op, op, [rnd("sx", "float", [2, 3]), rnd("sx", "float", [2, 2])], error=True)
  f.case("%s of vectors" % op, op, [f32([1, 2]), f32([1, 0])], error=True)
  op = "SparseSoftmaxCrossEntropyWithLogits"
  for d in FLOATS:
    for l in ["int32", "int64"]:
      name = "%s of %s with %s labels" % (op, d, l)
      f.case(name, op, [rnd(name, d, [3, 4], -3, 3), t(l, [3, 0, 1])], dy=[0])
  name = "%s with a gradient for both outputs" % op
  f.case(name, op, [rnd(name, "float", [2, 3], -3, 3), i64([2, 0])])
  f.case("%s of large logits" % op, op, [f32([[1000, 0, -1000], [0, 500, 0]]), i64([0, 0])], dy=[0])
  f.case("%s of nothing" % op, op, [f32([], [0, 3]), i64([], [0])], dy=[0])
  f.case("%s of a label too large" % op, op, [rnd("sx", "float", [2, 3]), i64([0, 3])], error="3")
  f.case("%s of a negative label" % op, op, [rnd("sx", "float", [2, 3]), i32([0, -1])], error="-1")
  f.case("%s of another number of labels" % op, op, [rnd("sx", "float", [2, 3]), i64([0])], error=True)
  f.case("%s of a matrix of labels" % op, op, [rnd("sx", "float", [2, 3]), i64([[0], [1]])], error=True)
  f.case("%s of a vector of logits" % op, op, [f32([1, 2]), i64([0, 1])], error=True)

  def norm(name, d, shape, fmt="NHWC", training=True, mean=None, grad=None, unset=(), **attrs):
    c = shape[-1] if fmt == "NHWC" else shape[1]
    none = mean is None
    f.case(name, "FusedBatchNormV3",
           [rnd(name, d, shape), rnd(name + "scale", "float", [c], 0.5, 2), rnd(name + "offset", "float", [c]),
            f32([], [0]) if none else rnd(name + "mean", "float", [c]), f32([], [0]) if none else rnd(name + "var", "float", [c], 0.5, 2)],
           dict({"T": d, "U": "float", "data_format": fmt, "is_training": training}, **attrs), dy=[0], grad=grad, unset=unset if training else (3, 4))

  for d in ["float", "half", "bfloat16"]:
    norm("FusedBatchNormV3 of %s in training" % d, d, [2, 2, 2, 2])
    norm("FusedBatchNormV3 of %s by given moments" % d, d, [2, 2, 1, 2], training=False, mean=1)
  norm("FusedBatchNormV3 channels second", "float", [2, 3, 2, 1], "NCHW")
  norm("FusedBatchNormV3 channels second by given moments", "float", [2, 3, 2, 1], "NCHW", training=False, mean=1)
  norm("FusedBatchNormV3 with a larger epsilon", "float", [2, 2, 1, 2], epsilon=0.01)
  norm("FusedBatchNormV3 averaging its moments", "float", [2, 2, 1, 2], mean=1, exponential_avg_factor=0.25)
  norm("FusedBatchNormV3 of one element a channel", "float", [1, 1, 1, 3])
  norm("FusedBatchNormV3 of an empty batch", "float", [0, 2, 2, 2], grad=False, unset=(3, 4))
  f.case("FusedBatchNormV3 of rank two", "FusedBatchNormV3", [f32([[1, 2]]), f32([1, 1]), f32([0, 0]), f32([], [0]), f32([], [0])], error=True)
  f.case("FusedBatchNormV3 of a scale too short", "FusedBatchNormV3",
         [rnd("fb", "float", [1, 2, 2, 2]), f32([1]), f32([0, 0]), f32([], [0]), f32([], [0])], error=True)
  for d in ["float", "half", "bfloat16"]:
    for training in [True, False]:
      name = "FusedBatchNormGradV3 of %s %s" % (d, "in training" if training else "by given moments")
      f.case(name, "FusedBatchNormGradV3",
             [rnd(name + "dy", d, [2, 2, 1, 2]), rnd(name + "x", d, [2, 2, 1, 2]), rnd(name + "s", "float", [2], 0.5, 2),
              rnd(name + "m", "float", [2], -0.5, 0.5), rnd(name + "v", "float", [2], 0.5, 2), f32([], [0])],
             {"is_training": training, "epsilon": 0.001}, dy=[0, 1, 2])

  for d in REALS:
    name = "TopKV2 of %s" % d
    f.case(name, "TopKV2", [rnd(name, d, [2, 5]), i32(3)])
  for d in ["int16", "int32", "int64"]:
    f.case("TopKV2 as %s" % d, "TopKV2", [f32([3, 1, 4, 1, 5]), i32(2)], {"index_type": d})
    f.case("TopKV2 of an %s k" % d, "TopKV2", [f32([3, 1, 4, 1, 5]), t(d, 4)])
  f.case("TopKV2 prefers the first of equals", "TopKV2", [f32([[2, 2, 1, 2], [1, 1, 1, 1]]), i32(3)], grad=False)
  f.case("TopKV2 of one", "TopKV2", [f32([[2, 7, 1], [9, 8, 7]]), i32(1)])
  f.case("TopKV2 of all", "TopKV2", [f32([[2, 7, 1], [9, 8, 7]]), i32(3)])
  f.case("TopKV2 of none", "TopKV2", [f32([[2, 7, 1]]), i32(0)], grad=False)
  f.case("TopKV2 of rank three", "TopKV2", [rnd("topk", "float", [2, 2, 3]), i32(2)])
  f.case("TopKV2 of too many", "TopKV2", [f32([1, 2]), i32(3)], error=True)
  f.case("TopKV2 of a negative number", "TopKV2", [f32([1, 2]), i32(-1)], error=True)
  f.case("TopKV2 of a scalar", "TopKV2", [f32(1), i32(1)], error=True)
  p = f32([[0.1, 0.5, 0.3], [0.4, 0.4, 0.2], [NAN, 0.1, 0.2], [0.3, 0.3, 0.3], [INF, 1, 2]])
  for d in ["int32", "int64"]:
    for k in [1, 2]:
      f.case("InTopKV2 of %s with k %d" % (d, k), "InTopKV2", [p, t(d, [2, 1, 1, 2, 0]), t(d, k)])
  f.case("InTopKV2 of a class out of range", "InTopKV2", [f32([[0.1, 0.5], [0.2, 0.1]]), i32([2, -1]), i32(2)])
  f.case("InTopKV2 of another number of targets", "InTopKV2", [f32([[0.1, 0.5]]), i32([0, 1]), i32(1)], error=True)
  f.write()


def conv():
  f = File(__file__, "conv.json")

  def all_three(what, d, image, kernel, depthwise=False, grad=None, back=True, **attrs):
    """Forward and both gradients as ops, on one set of sizes."""
    fwd, back_filter, back_input = ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput") \
        if depthwise else ("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput")
    attrs = dict({"strides": [1, 1, 1, 1], "padding": "SAME"}, **attrs)
    x, w = rnd(what + "x", d, image, -1, 1) if d in FLOATS else rnd(what + "x", d, image), rnd(what + "w", d, kernel)
    name = "%s of %s %s" % (fwd, d, what)
    before = len(f.cases)
    f.case(name, fwd, [x, w], attrs, grad=grad)
    if len(f.cases) == before or not back:
      return
    y = f.cases[-1]["outputs"][0]["shape"]
    dy = rnd(what + "dy", d, y)
    if d != "int32":
      f.case("%s of %s %s" % (back_filter, d, what), back_filter, [x, i32(kernel), dy], attrs, grad=grad if d == "float" else False)
    f.case("%s of %s %s" % (back_input, d, what), back_input, [i32(image), w, dy], attrs, grad=grad if d == "float" else False)

  for d in FLOATS + ["int32"]:
    all_three("plain", d, [1, 3, 3, 2], [2, 2, 2, 2])
  all_three("unpadded", "float", [1, 4, 4, 1], [3, 3, 1, 2], padding="VALID")
  all_three("of stride two", "float", [1, 5, 5, 1], [3, 3, 1, 2], strides=[1, 2, 2, 1])
  all_three("of stride two unpadded", "double", [2, 5, 4, 1], [2, 3, 1, 2], strides=[1, 2, 2, 1], padding="VALID")
  all_three("of unequal strides", "float", [1, 5, 5, 1], [2, 2, 1, 1], strides=[1, 2, 1, 1])
  all_three("of strides beyond the kernel", "float", [1, 5, 5, 1], [1, 1, 1, 2], strides=[1, 3, 2, 1])
  all_three("of an even kernel", "float", [1, 4, 4, 1], [4, 2, 1, 1])
  all_three("of one by one", "float", [2, 2, 2, 3], [1, 1, 3, 2])
  all_three("of a kernel as large as the image", "float", [2, 3, 3, 1], [3, 3, 1, 2], padding="VALID")
  all_three("of a kernel larger than the image", "float", [1, 2, 2, 1], [3, 3, 1, 1])
  # TensorFlow's own CPU kernels have no gradient for dilated and for grouped convolutions.
  all_three("dilated", "float", [1, 5, 5, 1], [2, 2, 1, 1], dilations=[1, 2, 2, 1], padding="VALID", grad=False, back=False)
  all_three("dilated with padding", "float", [1, 5, 4, 1], [3, 2, 1, 2], dilations=[1, 2, 1, 1], grad=False, back=False)
  all_three("explicitly padded", "float", [1, 3, 3, 1], [2, 2, 1, 2], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 2, 1, 0, 0])
  all_three("explicitly padded of stride two", "float", [1, 4, 4, 1], [3, 3, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 0, 2, 0, 0], strides=[1, 2, 2, 1])
  all_three("of an empty batch", "float", [0, 3, 3, 1], [2, 2, 1, 2], grad=False)
  all_three("with groups", "float", [1, 3, 3, 4], [2, 2, 2, 2], grad=False, back=False)
  all_three("of many channels", "float", [1, 3, 3, 8], [3, 3, 8, 5], grad=False)
  one = {"strides": [1, 1, 1, 1], "padding": "VALID"}
  f.case("Conv2D of depths that differ", "Conv2D", [rnd("cx", "float", [1, 3, 3, 2]), rnd("cw", "float", [2, 2, 3, 1])], one, error=True)
  f.case("Conv2D of a kernel larger than the image without padding", "Conv2D", [rnd("cx", "float", [1, 2, 2, 1]), rnd("cw", "float", [4, 4, 1, 1])], one, error=True)
  f.case("Conv2D of a kernel larger than the image by one", "Conv2D", [rnd("cx", "float", [1, 2, 2, 1]), rnd("cw", "float", [3, 3, 1, 1])], one, grad=False)
  f.case("Conv2D of rank three", "Conv2D", [rnd("cx", "float", [3, 3, 2]), rnd("cw", "float", [2, 2, 2, 1])], one, error=True)
  f.case("Conv2D with a stride over the batch", "Conv2D", [rnd("cx", "float", [1, 3, 3, 1]), rnd("cw", "float", [2, 2, 1, 1])],
         {"strides": [2, 1, 1, 1], "padding": "VALID"}, error=True)
  f.case("Conv2DBackpropInput of a gradient that does not fit", "Conv2DBackpropInput", [i32([1, 3, 3, 1]), rnd("cw", "float", [2, 2, 1, 1]), rnd("cg", "float", [1, 3, 3, 1])], one, error=True)
  f.case("Conv2DBackpropFilter of a gradient that does not fit", "Conv2DBackpropFilter", [rnd("cx", "float", [1, 3, 3, 1]), i32([2, 2, 1, 1]), rnd("cg", "float", [1, 3, 3, 1])], one, error=True)
  for d in FLOATS:
    all_three("plain", d, [1, 3, 3, 2], [2, 2, 2, 2], depthwise=True)
  all_three("unpadded", "float", [1, 4, 4, 2], [3, 3, 2, 1], depthwise=True, padding="VALID")
  all_three("of stride two", "float", [1, 5, 5, 2], [3, 3, 2, 1], depthwise=True, strides=[1, 2, 2, 1])
  all_three("of stride two unpadded", "double", [2, 5, 5, 1], [2, 2, 1, 3], depthwise=True, strides=[1, 2, 2, 1], padding="VALID")
  all_three("explicitly padded", "float", [1, 3, 3, 2], [2, 2, 2, 1], depthwise=True, padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 2, 1, 0, 0])
  all_three("of one channel", "float", [1, 3, 3, 1], [2, 2, 1, 2], depthwise=True)
  all_three("of an empty batch", "float", [0, 3, 3, 2], [2, 2, 2, 1], depthwise=True, grad=False, back=False)
  f.case("DepthwiseConv2dNative of depths that differ", "DepthwiseConv2dNative", [rnd("cx", "float", [1, 3, 3, 2]), rnd("cw", "float", [2, 2, 3, 1])], one, error=True)
  f.write()


def pool():
  f = File(__file__, "pool.json")

  def pools(what, d, image, ksize, strides, padding, ops=("MaxPool", "AvgPool"), grads=True, **attrs):
    for op in ops:
      x = rnd(op + what, d, image)
      a = dict({"ksize": [1] + ksize + [1], "strides": [1] + strides + [1], "padding": padding}, **attrs)
      before = len(f.cases)
      f.case("%s of %s %s" % (op, d, what), op, [x], a)
      if len(f.cases) == before or not grads:
        continue
      y = f.cases[-1]["outputs"][0]
      dy = rnd(op + what + "dy", d, y["shape"])
      if op == "MaxPool":
        values = [v if isinstance(v, int) else float(v) for v in y["values"]]
        f.case("MaxPoolGrad of %s %s" % (d, what), "MaxPoolGrad", [x, t(d, np.array(values).reshape(y["shape"])), dy], a)
      else:
        f.case("AvgPoolGrad of %s %s" % (d, what), "AvgPoolGrad", [i32(image), dy], a)

  for d in FLOATS:
    pools("plain", d, [1, 4, 4, 1], [2, 2], [2, 2], "VALID")
  for d in SIGNED + ["uint8", "uint16"]:
    pools("plain", d, [1, 4, 4, 1], [2, 2], [2, 2], "VALID", ops=("MaxPool",))
  pools("overlapping", "float", [1, 4, 4, 2], [3, 3], [1, 1], "VALID")
  pools("padded of stride two", "float", [1, 5, 5, 1], [3, 3], [2, 2], "SAME")
  pools("padded of stride one", "float", [1, 3, 3, 2], [2, 2], [1, 1], "SAME")
  pools("unequal", "double", [2, 4, 3, 1], [2, 1], [2, 1], "SAME")
  pools("with gaps", "float", [1, 5, 5, 1], [1, 1], [2, 2], "SAME")
  pools("of the whole image", "float", [2, 3, 3, 2], [3, 3], [1, 1], "VALID")
  pools("of several channels", "float", [1, 4, 4, 3], [2, 2], [2, 2], "SAME")
  pools("of an empty batch", "float", [0, 4, 4, 1], [2, 2], [2, 2], "SAME", grads=False)
  for d in ["uint32", "uint64"]:
    name = "MaxPoolGrad of %s" % d
    f.case(name, "MaxPoolGrad", [t(d, [1, 2, 4, 3], [1, 2, 2, 1]), t(d, [4], [1, 1, 1, 1]), t(d, [7], [1, 1, 1, 1])],
           {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"})
  pools("explicitly padded", "float", [1, 3, 3, 1], [2, 2], [1, 1], "EXPLICIT", ops=("MaxPool",), explicit_paddings=[0, 0, 1, 0, 0, 1, 0, 0])
  x = f32([[[[1], [1], [2], [2]], [[1], [1], [2], [3]], [[0], [0], [-1], [-1]], [[0], [0], [-1], [-1]]]])
  a = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
  f.case("the gradient of MaxPool goes to the first of equals", "MaxPool", [x], a)
  f.case("MaxPoolGrad gives to the first of equals", "MaxPoolGrad", [x, f32([1, 3, 0, -1], [1, 2, 2, 1]), f32([1, 2, 3, 4], [1, 2, 2, 1])], a)
  f.case("MaxPoolGrad adds where windows overlap", "MaxPoolGrad", [f32([1, 9, 2, 3], [1, 1, 4, 1]), f32([9, 9, 3], [1, 1, 3, 1]), f32([1, 2, 4], [1, 1, 3, 1])],
         {"ksize": [1, 1, 2, 1], "strides": [1, 1, 1, 1], "padding": "VALID"})
  f.case("MaxPool of channels two by two", "MaxPool", [rnd("mc", "float", [1, 2, 2, 4])], {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2], "padding": "SAME"}, grad=False)
  f.case("MaxPool of rank three", "MaxPool", [rnd("mx", "float", [2, 2, 1])], a, error=True)
  f.case("AvgPool of rank three", "AvgPool", [rnd("mx", "float", [2, 2, 1])], a, error=True)
  f.case("MaxPoolGrad of a gradient that does not fit", "MaxPoolGrad", [x, f32([1, 3, 0, -1], [1, 2, 2, 1]), f32([1, 2, 3], [1, 1, 3, 1])], a, error=True)
  f.write()


if __name__ == "__main__":
  nn()
  conv()
  pool()
