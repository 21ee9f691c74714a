"""Ops that move, cut, join and index: array, cast, strided_slice, segments."""
from golden import *

NAN, INF = float("nan"), float("inf")
PLAIN = NUMBERS + ["bool"]
MOVED = PLAIN + ["string"]
F8 = ["float8_e4m3fn", "float8_e5m2"]
Q3 = ["qint8", "quint8", "qint32"]


def cast():
  f = File(__file__, "cast.json")
  types = PLAIN
  for src in types:
    for dst in types:
      lo, hi = (0, 9) if dst in UNSIGNED or src in UNSIGNED else (-9, 9)
      name = "Cast of %s to %s" % (src, dst)
      x = rnd(name, src, [4], lo, hi)
      f.case(name, "Cast", [x], {"DstT": dst}, grad=src in ("float", "double") and dst in ("float", "double", "bool"))
  for src, dst in [("float", "half"), ("float", "bfloat16"), ("double", "float"), ("double", "half"), ("double", "bfloat16")]:
    f.case("Cast of %s to %s rounds to the nearest even" % (src, dst), "Cast",
           [t(src, [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-24, 65504, 65519, 65520, 1e30, NAN, INF, -INF, -0.0])],
           {"DstT": dst}, grad=False)
    f.case("Cast of %s to %s truncated" % (src, dst), "Cast", [t(src, [1 + 3 * 2.0**-11, 1 + 3 * 2.0**-8, -1.9999999, 0.1])],
           {"DstT": dst, "Truncate": True}, grad=False)
  for dst in ["int32", "int64", "int8", "uint8"]:
    f.case("Cast of float to %s cuts the fraction" % dst, "Cast", [f32([0.9, 1.5, 2.5, 3.999, 100.7])], {"DstT": dst})
    if dst != "uint8":
      f.case("Cast of negative double to %s cuts the fraction" % dst, "Cast", [f64([-0.9, -1.5, -100.7])], {"DstT": dst})
  f.case("Cast of int32 to int8 wraps", "Cast", [i32([127, 128, 255, 256, -129])], {"DstT": "int8"})
  f.case("Cast of int64 to int32 wraps", "Cast", [i64([2**31, -2**31 - 1, 2**40 + 3])], {"DstT": "int32"})
  f.case("Cast of int32 to uint8 wraps", "Cast", [i32([-1, 256, 300])], {"DstT": "uint8"})
  f.case("Cast of large int64 to float", "Cast", [i64([2**53 + 1, 2**62, -2**63, 16777217])], {"DstT": "float"})
  f.case("Cast of large uint64 to double", "Cast", [t("uint64", np.array([2**64 - 1, 2**63], dtype=np.uint64))], {"DstT": "double"})
  f.case("Cast of float to bool by zero", "Cast", [f32([0, -0.0, 0.1, NAN, -2])], {"DstT": "bool"})
  f.case("Cast of a scalar", "Cast", [f32(3)], {"DstT": "int32"})
  f.case("Cast of nothing", "Cast", [f32([], [0, 2])], {"DstT": "int32"})
  f.case("Cast of string is unknown", "Cast", [s(["1"])], {"DstT": "int32"}, error=True)
  for d in ["float8_e4m3fn", "float8_e5m2"]:
    f.case("Cast of float to %s" % d, "Cast", [f32([0, 0.5, -1.5, 3.25, 17.0, -200.0])], {"DstT": d}, grad=False)
    f.case("Cast of %s to float" % d, "Cast", [t(d, [0, 0.5, -1.5, 3.25, 16.0])], {"DstT": "float"})
  f.write()


def array():
  f = File(__file__, "array.json")
  for d in MOVED + F8 + QUANTIZED:
    name = "ConcatV2 of %s" % d
    f.case(name, "ConcatV2", [rnd(name + "a", d, [2, 1]), rnd(name + "b", d, [2, 2]), i32(1)])
  for axis, shapes in [(0, [[1, 2], [2, 2], [1, 2]]), (-1, [[2, 1], [2, 3]]), (-2, [[1, 3], [1, 3]]), (0, [[0], [2]]), (1, [[2, 0], [2, 0]]),
                       (2, [[1, 2, 1, 2, 1], [1, 2, 3, 2, 1]]), (0, [[3]]), (1, [[2, 1, 2], [2, 0, 2], [2, 2, 2]])]:
    name = "ConcatV2 of %s along %d" % (shapes, axis)
    if len(shapes) > 1:
      f.case(name, "ConcatV2", [rnd(name + str(i), "float", x) for i, x in enumerate(shapes)] + [i32(axis)])
  f.case("ConcatV2 with an int64 axis", "ConcatV2", [f32([1, 2]), f32([3]), i64(0)])
  f.case("ConcatV2 of sizes that differ", "ConcatV2", [f32([[1, 2]]), f32([[1], [2]]), i32(1)], error=True)
  f.case("ConcatV2 of ranks that differ", "ConcatV2", [f32([[1, 2]]), f32([1, 2]), i32(0)], error=True)
  f.case("ConcatV2 along an axis too large", "ConcatV2", [f32([1]), f32([2]), i32(1)], error=True)
  f.case("ConcatV2 of scalars", "ConcatV2", [f32(1), f32(2), i32(0)], error=True)
  for d in ["int32", "int64"]:
    f.case("ConcatOffset of %s" % d, "ConcatOffset", [i32(1), t(d, [2, 2, 7]), t(d, [2, 3, 7]), t(d, [2, 9, 7])])
    f.case("ConcatOffset of %s from the end" % d, "ConcatOffset", [i32(-3), t(d, [2, 2, 7]), t(d, [1, 2, 7])])
  f.case("ConcatOffset of sizes that differ", "ConcatOffset", [i32(1), i32([2, 2]), i32([3, 2])], error=True)
  f.case("ConcatOffset along an axis too large", "ConcatOffset", [i32(2), i32([2, 2]), i32([2, 2])], error=True)
  for d in MOVED + QUANTIZED:
    name = "Const of %s" % d
    x = rnd(name, d, [2, 2])
    f.case(name, "Const", [], {"dtype": d, "value": x})
  f.case("Const of a scalar", "Const", [], {"dtype": "float", "value": f32(2.5)})
  f.case("Const of nothing", "Const", [], {"dtype": "float", "value": f32([], [0, 4])})
  f.case("Const of large int64", "Const", [], {"dtype": "int64", "value": i64([2**62, -2**63])})
  for d in MOVED:
    if d != "string":
      name = "ExpandDims of %s" % d
      f.case(name, "ExpandDims", [rnd(name, d, [2, 2]), i32(1)])
      name = "Squeeze of %s" % d
      f.case(name, "Squeeze", [rnd(name, d, [1, 2, 1, 2])], {"squeeze_dims": []})
      name = "Reshape of %s" % d
      f.case(name, "Reshape", [rnd(name, d, [2, 3]), i32([3, -1])])
      name = "Shape of %s" % d
      f.case(name, "Shape", [rnd(name, d, [2, 1, 3])])
      name = "ShapeN of %s" % d
      f.case(name, "ShapeN", [rnd(name, d, [2, 1]), rnd(name, d, []), rnd(name, d, [0, 3])])
      name = "Size of %s" % d
      f.case(name, "Size", [rnd(name, d, [2, 3])])
  for axis in [0, -1, -3, 2]:
    f.case("ExpandDims at %d" % axis, "ExpandDims", [rnd("x", "float", [2, 3]), i32(axis)])
  f.case("ExpandDims of a scalar at an int64 axis", "ExpandDims", [f32(1), i64(0)])
  f.case("ExpandDims at an int32 vector of one axis", "ExpandDims", [f32([1, 2]), i32([0])])
  f.case("ExpandDims of a string", "ExpandDims", [s(["a"]), i32(0)])
  f.case("ExpandDims beyond the last axis", "ExpandDims", [f32([1]), i32(2)], error=True)
  for dims in [[0], [-1], [0, 2], [-2, 0]]:
    f.case("Squeeze of dims %s" % dims, "Squeeze", [rnd("x", "float", [1, 3, 1] if dims != [-1] else [2, 3, 1])], {"squeeze_dims": dims if dims != [-2, 0] else [-1, 0]})
  f.case("Squeeze of a string", "Squeeze", [s([["a"]])])
  f.case("Squeeze of a dimension of two", "Squeeze", [f32([[1, 2]])], {"squeeze_dims": [1]}, error=True)
  f.case("Squeeze of a missing dimension", "Squeeze", [f32([[1, 2]])], {"squeeze_dims": [2]}, error=True)
  for d in ["int32", "int64"]:
    for shape, to in [([2, 3], [6]), ([2, 3], [-1]), ([6], [1, 2, -1]), ([1], []), ([0, 3], [3, 0]), ([0, 2], [0, -1]), ([2, 1, 3, 1, 2], [3, 2, 2])]:
      if d == "int64" and to != [-1]:
        continue
      f.case("Reshape of %s to %s %s" % (shape, d, to), "Reshape", [rnd("x", "float", shape), t(d, to, [len(to)])])
    f.case("Shape as %s" % d, "Shape", [f32(np.zeros([2, 0]))], {"out_type": d})
    f.case("ShapeN as %s" % d, "ShapeN", [f32(np.zeros([2, 0])), f32(1)], {"out_type": d})
    f.case("Size as %s" % d, "Size", [f32(np.zeros([2, 0]))], {"out_type": d})
  f.case("Reshape of a string", "Reshape", [s(["a", "b"]), i32([2, 1])])
  f.case("Shape of a scalar string", "Shape", [s("a")])
  f.case("Reshape to another size", "Reshape", [f32([1, 2, 3]), i32([2, 2])], error=True)
  f.case("Reshape with two unknown sizes", "Reshape", [f32([1, 2, 3, 4]), i32([-1, -1])], error=True)
  f.case("Reshape to a size that does not divide", "Reshape", [f32([1, 2, 3]), i32([2, -1])], error=True)
  f.case("Reshape to a negative size", "Reshape", [f32([1, 2]), i32([-2, 1])], error=True)
  f.case("Reshape of nothing to an unknown size", "Reshape", [f32([], [0]), i32([-1, 0])])
  for d in MOVED + ["int4", "uint4"] + QUANTIZED:
    f.case("Fill of %s" % d, "Fill", [i32([2, 2]), rnd("Fill" + d, d, [])])
  f.case("Fill of int64 dims", "Fill", [i64([3]), f32(0.5)])
  f.case("Fill of a scalar", "Fill", [i32([], [0]), f32(0.5)])
  f.case("Fill of nothing", "Fill", [i32([2, 0]), f32(0.5)])
  f.case("Fill of a negative size", "Fill", [i32([-1]), f32(0.5)], error=True)
  f.case("Fill with a vector", "Fill", [i32([2]), f32([1, 2])], error=True)
  for op in ["GatherV2", "Gather"]:
    tail = lambda a=0: [i32(a)] if op == "GatherV2" else []
    for d in MOVED + F8 + QUANTIZED:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [3, 2]), i32([2, 0, 2])] + tail())
    for d in ["int32", "int64"] + (["int16"] if op == "GatherV2" else []):
      f.case("%s by %s" % (op, d), op, [f32([[1, 2], [3, 4]]), t(d, [[1, 0], [1, 1]])] + tail())
    f.case("%s by a scalar" % op, op, [f32([[1, 2], [3, 4]]), i32(1)] + tail())
    f.case("%s by nothing" % op, op, [f32([[1, 2], [3, 4]]), i32([], [0])] + tail())
    f.case("%s of empty rows" % op, op, [f32([], [2, 0]), i32([1, 0])] + tail())
    f.case("%s of no rows" % op, op, [f32([], [0, 2]), i32([0])] + tail(), error=True)
    f.case("%s with an index too large" % op, op, [f32([1, 2, 3]), i32([0, 3])] + tail(), error="3")
    f.case("%s with a negative index" % op, op, [f32([1, 2, 3]), i64([[0, -1]])] + tail(), error="-1")
    f.case("%s of a scalar" % op, op, [f32(1), i32([0])] + tail(), error=True)
  x3 = rnd("x3", "float", [2, 3, 2])
  for axis, batch in [(1, 0), (-1, 0), (2, 0), (-3, 0), (1, 1), (2, 1)]:
    idx = i32([[0, 1], [1, 0]]) if batch else i32([1, 0, 1])
    f.case("GatherV2 along %d with %d batch dims" % (axis, batch), "GatherV2", [x3, idx, i32(axis)], {"batch_dims": batch})
  f.case("GatherV2 along an int64 axis", "GatherV2", [x3, i32([1]), i64(1)])
  f.case("GatherV2 with batch dims from the end", "GatherV2", [x3, i32([[0, 1], [1, 0]]), i32(2)], {"batch_dims": -1})
  f.case("GatherV2 along an axis too large", "GatherV2", [x3, i32([1]), i32(3)], error=True)
  f.case("GatherV2 with batches that differ", "GatherV2", [x3, i32([[0], [1], [1]]), i32(1)], {"batch_dims": 1}, error=True)
  for d in MOVED + F8 + Q3:
    name = "GatherNd of %s" % d
    f.case(name, "GatherNd", [rnd(name, d, [2, 3]), i32([[1, 2], [0, 0], [1, 2]])])
  for d in ["int16", "int32", "int64"]:
    f.case("GatherNd by %s of rows" % d, "GatherNd", [x3, t(d, [[1], [0], [1]])])
  f.case("GatherNd by whole", "GatherNd", [x3, i32([], [2, 0])], grad=False)
  f.case("GatherNd by a stack of pairs", "GatherNd", [x3, i32([[[0, 1]], [[1, 2]]])])
  f.case("GatherNd by nothing", "GatherNd", [x3, i32([], [0, 2])])
  f.case("GatherNd by one vector", "GatherNd", [x3, i32([1, 2, 0])])
  f.case("GatherNd of five axes", "GatherNd", [rnd("x5", "float", [1, 2, 1, 2, 2]), i32([[0, 1, 0, 1, 0], [0, 0, 0, 0, 1]])])
  f.case("GatherNd with an index too large", "GatherNd", [x3, i32([[0, 3]])], error=True)
  f.case("GatherNd with a negative index", "GatherNd", [x3, i32([[-1, 0]])], error=True)
  f.case("GatherNd with indices too deep", "GatherNd", [f32([1, 2]), i32([[0, 0]])], error=True)
  f.case("GatherNd ignoring bad indices", "GatherNd", [f32([1, 2]), i32([[5], [1]])], {"bad_indices_policy": "IGNORE"}, grad=False)
  for d in MOVED:
    for op in ["Identity", "StopGradient"]:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 2])])
    name = "PlaceholderWithDefault of %s" % d
    f.case(name, "PlaceholderWithDefault", [rnd(name, d, [2, 2])], {"shape": [2, None]})
  f.case("IdentityN of several", "IdentityN", [f32([1, 2]), i64([[3]]), s(["a"]), b(True), f64([0.5])])
  f.case("IdentityN of one", "IdentityN", [f32(1)])
  for d in MOVED + F8 + QUANTIZED:
    name = "Pack of %s" % d
    f.case(name, "Pack", [rnd(name + "a", d, [2]), rnd(name + "b", d, [2])])
    if d not in QUANTIZED:
      name = "Unpack of %s" % d
      f.case(name, "Unpack", [rnd(name + "a", d, [2, 2])], {"num": 2})
  for axis in [1, -1, 2, -3]:
    f.case("Pack along %d" % axis, "Pack", [rnd("Pack%d" % i, "float", [2, 2]) for i in range(3)], {"axis": axis})
  for axis in [1, -1, 2, -3]:
    f.case("Unpack along %d" % axis, "Unpack", [x3], {"axis": axis, "num": x3.shape[axis]})
  f.case("Pack of scalars", "Pack", [f32(1), f32(2), f32(3)])
  f.case("Pack of one", "Pack", [f32([1, 2])])
  f.case("Pack of nothing", "Pack", [f32([], [0]), f32([], [0])])
  f.case("Pack of shapes that differ", "Pack", [f32([1]), f32([1, 2])], error=True)
  f.case("Pack along an axis too large", "Pack", [f32([1]), f32([1])], {"axis": 2}, error=True)
  f.case("Unpack of another number", "Unpack", [f32([1, 2, 3])], {"num": 2}, error=True)
  f.case("Unpack into none", "Unpack", [f32([], [0, 2])], {"num": 0})
  f.case("Unpack of empty rows", "Unpack", [f32([], [2, 0])], {"num": 2})
  for d in FLOATS + ["int32", "int64"]:
    f.case("Range of %s" % d, "Range", [t(d, 1), t(d, 8), t(d, 3)])
    f.case("Range of %s downward" % d, "Range", [t(d, 5), t(d, -2), t(d, -2)])
    f.case("Range of %s that is empty" % d, "Range", [t(d, 5), t(d, 5), t(d, 1)])
  f.case("Range of tenths", "Range", [f32(0), f32(1), f32(0.1)])
  f.case("Range of tenths in double", "Range", [f64(0.3), f64(1), f64(0.1)])
  f.case("Range by zero", "Range", [i32(0), i32(5), i32(0)], error=True)
  f.case("Range the wrong way", "Range", [i32(5), i32(0), i32(1)], error=True)
  f.case("Range of a vector", "Range", [i32([5]), i32([0, 1]), i32(1)], error=True)
  for op in ["Select", "SelectV2"]:
    for d in MOVED:
      name = "%s of %s" % (op, d)
      f.case(name, op, [b([[True, False], [False, True]]), rnd(name + "a", d, [2, 2]), rnd(name + "b", d, [2, 2])])
    f.case("%s by a scalar" % op, op, [b(False), rnd("a", "float", [2, 3]), rnd("b", "float", [2, 3])])
    f.case("%s of scalars" % op, op, [b(True), f32(1), f32(2)])
    f.case("%s of nothing" % op, op, [b([], [0]), f32([], [0]), f32([], [0])])
    f.case("%s keeps NaN out of the other side" % op, op, [b([True, False]), f32([1, NAN]), f32([NAN, 2])], grad=False)
  f.case("Select by rows", "Select", [b([True, False]), rnd("a", "float", [2, 3]), rnd("b", "float", [2, 3])])
  f.case("Select does not broadcast", "Select", [b([[True, False]]), rnd("a", "float", [2, 2]), rnd("b", "float", [2, 2])], error=True)
  f.case("Select of shapes that differ", "Select", [b(True), f32([1]), f32([1, 2])], error=True)
  for c, a, e in [([2, 1], [3], [2, 3]), ([3], [2, 3], []), ([2, 1, 1], [1, 3, 1], [2]), ([], [2], [2, 1]), ([0], [1], [])]:
    name = "SelectV2 of %s %s %s broadcasts" % (c, a, e)
    f.case(name, "SelectV2", [rnd(name, "bool", c), rnd(name + "a", "float", a), rnd(name + "e", "float", e)])
  f.case("SelectV2 of shapes that do not fit", "SelectV2", [b([True, False]), f32([1, 2, 3]), f32(1)], error=True)
  for d in MOVED + F8 + Q3:
    name = "Slice of %s" % d
    f.case(name, "Slice", [rnd(name, d, [3, 3]), i32([1, 0]), i32([2, 2])])
  for begin, size in [([0, 0, 0], [-1, -1, -1]), ([1, 1, 0], [1, -1, 1]), ([0, 3, 0], [2, 0, 2]), ([1, 2, 1], [1, 1, 1])]:
    f.case("Slice from %s of %s" % (begin, size), "Slice", [x3, i64(begin), i64(size)])
  f.case("Slice of a scalar", "Slice", [f32(1), i32([], [0]), i32([], [0])])
  f.case("Slice of rank five", "Slice", [rnd("x5", "float", [2, 1, 2, 1, 3]), i32([0, 0, 1, 0, 1]), i32([2, 1, 1, 1, 2])])
  f.case("Slice beyond the end", "Slice", [x3, i32([0, 2, 0]), i32([1, 2, 1])], error=True)
  f.case("Slice from a negative start", "Slice", [x3, i32([-1, 0, 0]), i32([1, 1, 1])], error=True)
  f.case("Slice of the wrong rank", "Slice", [x3, i32([0, 0]), i32([1, 1])], error=True)
  for d in MOVED + F8 + ["quint8", "int4", "uint4"]:
    name = "Split of %s" % d
    f.case(name, "Split", [i32(0), rnd(name, d, [4, 2])], {"num_split": 2})
  for axis, n in [(1, 3), (-1, 2), (2, 1), (-3, 2), (1, 1)]:
    f.case("Split along %d into %d" % (axis, n), "Split", [i32(axis), x3], {"num_split": n})
  f.case("Split of nothing", "Split", [i32(1), f32([], [0, 4])], {"num_split": 2})
  f.case("Split that does not divide", "Split", [i32(1), x3], {"num_split": 2}, error=True)
  f.case("Split along an axis too large", "Split", [i32(3), x3], {"num_split": 1}, error=True)
  for d in MOVED:
    if d != "uint16":  # not written in TensorFlow
      name = "Tile of %s" % d
      f.case(name, "Tile", [rnd(name, d, [1, 2]), i32([2, 2])])
    if d not in ("string", "half"):  # registered for half, but fails
      name = "Where of %s" % d
      x = rnd(name, d, [2, 4], -2, 2)
      x.array.ravel()[1::3] = 0
      f.case(name, "Where", [x])
    name = "ZerosLike of %s" % d
    f.case(name, "ZerosLike", [rnd(name, d, [2, 2])])
  for m in [[1, 3, 1], [2, 1, 2], [0, 1, 1], [1, 1, 1]]:
    f.case("Tile by int64 %s" % m, "Tile", [rnd("t", "float", [2, 1, 2]), i64(m)])
  f.case("Tile of a scalar", "Tile", [f32(1), i32([], [0])])
  f.case("Tile of a vector", "Tile", [f32([1, 2]), i32([3])])
  f.case("Tile of rank five", "Tile", [rnd("t5", "float", [1, 2, 1, 1, 2]), i32([2, 1, 3, 1, 1])])
  f.case("Tile by a negative number", "Tile", [f32([1, 2]), i32([-1])], error=True)
  f.case("Tile by too few numbers", "Tile", [f32([[1, 2]]), i32([1])], error=True)
  f.case("Where of a vector", "Where", [b([False, True, True])])
  f.case("Where of nothing", "Where", [b([], [0, 2])])
  f.case("Where of nothing true", "Where", [b([[False, False]])])
  f.case("Where of rank five", "Where", [rnd("w5", "bool", [2, 1, 2, 2, 1])])
  f.case("Where of NaN and minus zero", "Where", [f32([NAN, -0.0, 0, 1])])
  for d in MOVED + F8:
    name = "BroadcastTo of %s" % d
    f.case(name, "BroadcastTo", [rnd(name, d, [2, 1]), i32([2, 3])])
    name = "Transpose of %s" % d
    f.case(name, "Transpose", [rnd(name, d, [2, 3]), i32([1, 0])])
  for a, to in [([], [2, 2]), ([1], [3]), ([3], [2, 3]), ([2, 1, 1], [2, 3, 2]), ([1, 3], [0, 3]), ([2], [2]), ([1, 1], [1, 2, 1, 2, 1]), ([], [])]:
    f.case("BroadcastTo of %s to %s" % (a, to), "BroadcastTo", [rnd("b", "float", a), i64(to, [len(to)])])
  f.case("BroadcastTo of shapes that do not fit", "BroadcastTo", [f32([1, 2]), i32([3])], error=True)
  f.case("BroadcastTo of a smaller rank", "BroadcastTo", [f32([[1, 2]]), i32([2])], error=True)
  for shape, perm in [([2, 3, 2], [2, 0, 1]), ([2, 3, 2], [0, 2, 1]), ([2, 3, 2], [0, 1, 2]), ([1, 2, 1, 3, 2], [4, 3, 2, 1, 0]), ([3], [0]), ([], []), ([0, 2], [1, 0]),
                      ([1, 2, 2, 3], [0, 3, 1, 2]), ([1, 2, 2, 1, 2, 2], [5, 0, 3, 1, 2, 4])]:
    f.case("Transpose of %s by %s" % (shape, perm), "Transpose", [rnd("p", "float", shape), i32(perm, [len(perm)])])
  f.case("Transpose by int64", "Transpose", [x3, i64([1, 2, 0])])
  f.case("Transpose by one axis twice", "Transpose", [f32([[1, 2]]), i32([0, 0])], error=True)
  f.case("Transpose by an axis too large", "Transpose", [f32([[1, 2]]), i32([0, 2])], error=True)
  f.case("Transpose of the wrong rank", "Transpose", [f32([[1, 2]]), i32([0])], error=True)
  for d in ["float", "double", "int32", "int64"]:
    f.case("Bucketize of %s" % d, "Bucketize", [t(d, [-5, 0, 1, 10, 99, 100, 10000])], {"boundaries": [0, 10, 100]})
  f.case("Bucketize without boundaries", "Bucketize", [f32([1, 2])], {"boundaries": []})
  f.case("Bucketize of boundaries out of order", "Bucketize", [f32([1, 2])], {"boundaries": [2, 1]}, error=True)
  for d in ["float", "double", "half", "complex64", "complex128", "int32", "int64"]:
    name = "DiagPart of %s" % d
    f.case(name, "DiagPart", [rnd(name, d, [3, 3])])
  f.case("DiagPart of rank four", "DiagPart", [rnd("d4", "float", [2, 2, 2, 2])])
  f.case("DiagPart of unequal sizes", "DiagPart", [rnd("d", "float", [2, 3])], error=True)
  f.case("DiagPart of odd rank", "DiagPart", [rnd("d", "float", [2, 2, 2])], error=True)
  for d in ["int32", "int64"]:
    f.case("InvertPermutation of %s" % d, "InvertPermutation", [t(d, [3, 4, 0, 2, 1])])
  f.case("InvertPermutation of nothing", "InvertPermutation", [i32([], [0])])
  f.case("InvertPermutation with a number twice", "InvertPermutation", [i32([0, 0])], error=True)
  f.case("InvertPermutation with a number too large", "InvertPermutation", [i32([0, 2])], error=True)
  f.case("InvertPermutation of a matrix", "InvertPermutation", [i32([[0]])], error=True)
  for d in MOVED:
    name = "OneHot of %s" % d
    on, off = rnd(name + "on", d, [], 1, 5), rnd(name + "off", d, [], 0, 0)
    if d == "bool":
      on, off = b(True), b(False)
    f.case(name, "OneHot", [i64([0, 2, 1]), i32(3), on, off])
  for d in ["int32", "int64", "int8", "uint8"]:
    f.case("OneHot by %s" % d, "OneHot", [t(d, [[0, 2], [1, 3]]), i32(3), f32(1), f32(0)], {"TI": d})
  for axis in [0, 1, 2, -1]:
    f.case("OneHot along %d" % axis, "OneHot", [i32([[0, -1, 1], [1, 5, 0]]), i32(2), f32(5), f32(-1)], {"axis": axis})
  f.case("OneHot of a scalar", "OneHot", [i64(1), i32(3), f32(1), f32(0)])
  f.case("OneHot of nothing", "OneHot", [i64([], [0]), i32(3), f32(1), f32(0)])
  f.case("OneHot of depth zero", "OneHot", [i64([0]), i32(0), f32(1), f32(0)])
  f.case("OneHot of a negative depth", "OneHot", [i64([0]), i32(-1), f32(1), f32(0)], error=True)
  f.case("OneHot along an axis too large", "OneHot", [i64([0]), i32(2), f32(1), f32(0)], {"axis": 2}, error=True)
  for d in MOVED + Q3:
    name = "Pad of %s" % d
    f.case(name, "Pad", [rnd(name, d, [1, 2]), i32([[1, 0], [0, 2]])])
  for shape, pads in [([2], [[1, 2]]), ([2, 1, 2], [[0, 0], [1, 1], [0, 1]]), ([1, 2, 1, 2, 1], [[0, 0], [0, 0], [1, 0], [0, 0], [0, 1]]),
                      ([0, 2], [[1, 1], [0, 0]]), ([2, 2], [[0, 0], [0, 0]]), ([1, 1, 1, 2], [[0, 0], [1, 0], [0, 1], [1, 1]])]:
    f.case("Pad of %s by int64 %s" % (shape, pads), "Pad", [rnd("pad", "float", shape), i64(pads)])
  f.case("Pad of a scalar", "Pad", [f32(1), i32([], [0, 2])])
  f.case("Pad of a wrong shape", "Pad", [f32([1, 2]), i32([[1, 1], [1, 1]])], error=True)
  f.case("Pad by a negative number", "Pad", [f32([1, 2]), i32([[-1, 0]])], error=True)
  for d in MOVED:
    name = "ScatterNd of %s" % d
    idx = [[1], [3], [1], [0]] if d not in ("bool", "string") else [[1], [3], [2], [0]]
    f.case(name, "ScatterNd", [i32(idx), rnd(name, d, [4, 2]), i32([4, 2])])
  f.case("ScatterNd by int64 of single elements", "ScatterNd", [i64([[0, 1], [1, 2], [0, 1]]), f32([1, 2, 3]), i64([2, 3])])
  f.case("ScatterNd of blocks", "ScatterNd", [i32([[1]]), rnd("s", "float", [1, 2, 2]), i32([2, 2, 2])])
  f.case("ScatterNd of nothing", "ScatterNd", [i32([], [0, 1]), f32([], [0]), i32([3])])
  f.case("ScatterNd with an index too large", "ScatterNd", [i32([[3]]), f32([1]), i32([3])], error=True)
  f.case("ScatterNd with a negative index", "ScatterNd", [i32([[-1]]), f32([1]), i32([3])], error=True)
  f.case("ScatterNd with updates that do not fit", "ScatterNd", [i32([[0], [1]]), f32([1]), i32([3])], error=True)
  f.case("ScatterNd ignoring bad indices", "ScatterNd", [i32([[5], [1]]), f32([1, 2]), i32([3])], {"bad_indices_policy": "IGNORE"}, grad=False)
  for d in REALS + ["bool", "string"]:
    name = "Unique of %s" % d
    f.case(name, "Unique", [rnd(name, d, [7], 0, 3)])
  f.case("Unique as int64", "Unique", [i32([3, 1, 3, 2])], {"out_idx": "int64"})
  f.case("Unique of nothing", "Unique", [i32([], [0])])
  f.case("Unique of a matrix", "Unique", [i32([[1, 2]])], error=True)
  for d in MOVED:
    name = "DynamicPartition of %s" % d
    f.case(name, "DynamicPartition", [rnd(name, d, [4, 2]), i32([1, 0, 1, 2])], {"num_partitions": 3})
  f.case("DynamicPartition of single elements", "DynamicPartition", [rnd("dp", "float", [2, 2]), i32([[1, 0], [0, 1]])], {"num_partitions": 2})
  f.case("DynamicPartition leaves one empty", "DynamicPartition", [f32([1, 2]), i32([0, 2])], {"num_partitions": 3})
  f.case("DynamicPartition of a scalar", "DynamicPartition", [f32([1, 2]), i32(1)], {"num_partitions": 2})
  f.case("DynamicPartition of nothing", "DynamicPartition", [f32([], [0, 2]), i32([], [0])], {"num_partitions": 2})
  f.case("DynamicPartition with a number too large", "DynamicPartition", [f32([1, 2]), i32([0, 2])], {"num_partitions": 2}, error=True)
  f.case("DynamicPartition of shapes that do not fit", "DynamicPartition", [f32([1, 2]), i32([0, 1, 1])], {"num_partitions": 2}, error=True)
  for op in ["DynamicStitch", "ParallelDynamicStitch"]:
    for d in MOVED + Q3:
      name = "%s of %s" % (op, d)
      f.case(name, op, [i32([0, 3]), i32([2, 1]), rnd(name + "a", d, [2, 2]), rnd(name + "b", d, [2, 2])])
    f.case("%s of scalars and matrices" % op, op, [i32(2), i32([[0, 1], [4, 3]]), rnd("a", "float", [2]), rnd("b", "float", [2, 2, 2])])
    f.case("%s of nothing" % op, op, [i32([], [0]), i32([], [0]), f32([], [0, 2]), f32([], [0, 2])])
    f.case("%s with shapes that do not fit" % op, op, [i32([0]), i32([1]), f32([[1, 2]]), f32([[1]])], error=True)
    f.case("%s with a negative index" % op, op, [i32([0]), i32([-1]), f32([1]), f32([2])], error=True) if op == "DynamicStitch" else None
  f.case("DynamicStitch lets the last of equals win", "DynamicStitch", [i32([0, 1]), i32([1, 2]), f32([1, 2]), f32([3, 4])], grad=False)
  f.write()


def strided():
  f = File(__file__, "strided_slice.json")

  def case(name, x, begin, end, strides, d="int32", error=None, grad=None, **masks):
    f.case(name, "StridedSlice", [x, t(d, begin, [len(begin)]), t(d, end, [len(end)]), t(d, strides, [len(strides)])],
           masks, error=error, grad=grad)

  for d in MOVED + F8 + Q3:
    name = "StridedSlice of %s" % d
    case(name, rnd(name, d, [3, 4]), [1, 0], [3, 4], [1, 2])
    name = "StridedSliceGrad of %s" % d
    f.case(name, "StridedSliceGrad", [i32([3, 4]), i32([1, 0]), i32([3, 4]), i32([1, 2]), rnd(name, d, [2, 2])])
  x = f32(np.arange(24).reshape([2, 3, 4]))
  case("StridedSlice with int64 bounds", x, [0, 1, 1], [2, 3, 3], [1, 1, 1], d="int64")
  case("StridedSlice with int16 bounds", x, [0, 1, 1], [2, 3, 3], [1, 1, 1], d="int16", grad=False)
  case("StridedSlice of fewer axes than there are", x, [1], [2], [1])
  case("StridedSlice with begin masks", x, [1, 1, 1], [2, 3, 4], [1, 1, 1], begin_mask=0b101)
  case("StridedSlice with end masks", x, [0, 1, 1], [1, 1, 1], [1, 1, 1], end_mask=0b111)
  case("StridedSlice with an ellipsis in front", x, [0, 1], [0, 3], [1, 1], ellipsis_mask=0b01)
  case("StridedSlice with an ellipsis in the middle", x, [1, 0, 2], [2, 0, 4], [1, 1, 1], ellipsis_mask=0b010)
  case("StridedSlice with an ellipsis behind", x, [1, 0], [2, 0], [1, 1], ellipsis_mask=0b10)
  case("StridedSlice with an ellipsis for nothing", x, [0, 0, 0, 1], [1, 0, 2, 3], [1, 1, 1, 1], ellipsis_mask=0b0010)
  case("StridedSlice with a new axis in front", x, [0, 1], [0, 2], [1, 1], new_axis_mask=0b01)
  case("StridedSlice with a new axis behind an ellipsis", x, [0, 0], [0, 0], [1, 1], ellipsis_mask=0b01, new_axis_mask=0b10)
  case("StridedSlice that drops an axis", x, [1], [2], [1], shrink_axis_mask=1)
  case("StridedSlice that drops two axes", x, [1, 0, 2], [2, 3, 3], [1, 1, 1], shrink_axis_mask=0b101)
  case("StridedSlice down to a scalar", x, [1, 2, 3], [2, 3, 4], [1, 1, 1], shrink_axis_mask=0b111)
  case("StridedSlice that drops the last by a negative index", x, [-1], [0], [1], shrink_axis_mask=1)
  case("StridedSlice backward", x, [1, 2, 3], [0, 0, 0], [-1, -1, -2])
  case("StridedSlice backward with masks", x, [0, 0, 0], [0, 0, 0], [-1, 1, -2], begin_mask=0b111, end_mask=0b111)
  case("StridedSlice with negative bounds", x, [-2, -2, -3], [2, -1, -1], [1, 1, 1])
  case("StridedSlice with bounds clipped", x, [-10, 1, -10], [10, 100, 100], [1, 1, 3])
  case("StridedSlice that is empty", x, [1, 2, 3], [1, 1, 3], [1, 1, 1])
  case("StridedSlice with all the masks", x, [1, 0, 0, 1, 5], [2, 0, 0, 2, 9], [1, 1, 1, 1, -1], begin_mask=0b10000, end_mask=0b10000, ellipsis_mask=0b00010, new_axis_mask=0b00100,
       shrink_axis_mask=0b00001)
  case("StridedSlice of a vector", f32([1, 2, 3, 4, 5]), [1], [4], [2])
  case("StridedSlice of a vector backward", f32([1, 2, 3, 4, 5]), [-1], [-6], [-2])
  case("StridedSlice of a scalar", f32(3), [], [], [])
  case("StridedSlice of a scalar with a new axis", f32(3), [0], [0], [1], new_axis_mask=1)
  case("StridedSlice of rank five", rnd("s5", "float", [2, 1, 2, 2, 3]), [0, 0, 1, 0, 2], [2, 1, 2, 2, 0], [1, 1, 1, 1, -1])
  case("StridedSlice of nothing", f32([], [0, 3]), [0, 1], [0, 3], [1, 1])
  case("StridedSlice by a stride of zero", x, [0], [1], [0], error=True)
  case("StridedSlice of more axes than there are", x, [0] * 4, [1] * 4, [1] * 4, error=True)
  case("StridedSlice with two ellipses", x, [0, 0], [1, 1], [1, 1], ellipsis_mask=3, error=True)
  case("StridedSlice dropping an index out of bounds", x, [2], [3], [1], shrink_axis_mask=1, error="2")
  case("StridedSlice dropping an index with stride two", x, [1], [2], [-1], shrink_axis_mask=1, error=True)
  f.case("StridedSlice with bounds of unequal length", "StridedSlice", [x, i32([0, 0]), i32([1]), i32([1, 1])], error=True)

  def back(name, shape, begin, end, strides, dy, error=None, d="int32", **masks):
    f.case(name, "StridedSliceGrad", [t(d, shape, [len(shape)]), t(d, begin), t(d, end), t(d, strides), dy], masks, error=error)

  back("StridedSliceGrad backward", [2, 3], [1, 2], [0, 0], [-1, -2], rnd("g", "float", [1, 1]))
  back("StridedSliceGrad that drops an axis", [2, 3], [1, 0], [2, 3], [1, 2], rnd("g", "float", [2]), shrink_axis_mask=1)
  back("StridedSliceGrad with a new axis", [2, 3], [0, 1], [0, 2], [1, 1], rnd("g", "float", [1, 1, 3]), new_axis_mask=1)
  back("StridedSliceGrad with an ellipsis and masks", [2, 2, 3], [0, 1], [0, 0], [1, 1], rnd("g", "float", [2, 2, 2]), ellipsis_mask=1, end_mask=2)
  back("StridedSliceGrad by int64", [2, 3], [0, 0], [2, 3], [1, 2], rnd("g", "double", [2, 2]), d="int64")
  back("StridedSliceGrad down to a scalar", [2, 3], [1, 1], [2, 2], [1, 1], rnd("g", "float", []), shrink_axis_mask=3)
  back("StridedSliceGrad of a shape that does not fit", [2, 3], [0, 0], [2, 3], [1, 2], rnd("g", "float", [2, 3]), error=True)
  f.write()


def segments():
  f = File(__file__, "segments.json")
  for d in NUMBERS:
    name = "SegmentSum of %s" % d
    f.case(name, "SegmentSum", [rnd(name, d, [4, 2]), i32([0, 0, 1, 3])])
    name = "UnsortedSegmentSum of %s" % d
    f.case(name, "UnsortedSegmentSum", [rnd(name, d, [4, 2]), i32([2, 0, 2, 0]), i32(3)])
  f.case("SegmentSum by int64", "SegmentSum", [f32([1, 2, 3]), i64([0, 1, 1])])
  f.case("SegmentSum of nothing", "SegmentSum", [f32([], [0, 2]), i32([], [0])])
  f.case("SegmentSum that starts late", "SegmentSum", [f32([1, 2]), i32([2, 2])])
  f.case("SegmentSum of ids out of order", "SegmentSum", [f32([1, 2, 3]), i32([0, 2, 1])], error=True)
  f.case("SegmentSum of another length", "SegmentSum", [f32([1, 2, 3]), i32([0, 1])], error=True)
  f.case("SegmentSum of a negative id", "SegmentSum", [f32([1, 2]), i32([-1, 0])], error=True)
  for d in ["int16", "int32", "int64"]:
    f.case("UnsortedSegmentSum by %s" % d, "UnsortedSegmentSum", [f32([1, 2, 3]), t(d, [1, 0, 1]), i32(2)])
  f.case("UnsortedSegmentSum into an int64 number", "UnsortedSegmentSum", [f32([1, 2, 3]), i64([1, 0, 1]), i64(2)])
  f.case("UnsortedSegmentSum drops negative ids", "UnsortedSegmentSum", [f32([1, 2, 3]), i32([-1, 0, 1]), i32(2)])
  f.case("UnsortedSegmentSum by a matrix of ids", "UnsortedSegmentSum", [rnd("u", "float", [2, 2, 2]), i32([[1, 0], [1, 1]]), i32(2)])
  f.case("UnsortedSegmentSum of nothing", "UnsortedSegmentSum", [f32([], [0, 2]), i32([], [0]), i32(2)])
  f.case("UnsortedSegmentSum into none", "UnsortedSegmentSum", [f32([], [0]), i32([], [0]), i32(0)])
  f.case("UnsortedSegmentSum of an id too large", "UnsortedSegmentSum", [f32([1]), i32([2]), i32(2)], error=True)
  f.case("UnsortedSegmentSum of shapes that do not fit", "UnsortedSegmentSum", [f32([1, 2]), i32([0]), i32(2)], error=True)
  for op, types in [("SparseSegmentSum", REALS), ("SparseSegmentMean", FLOATS), ("SparseSegmentSqrtN", FLOATS)]:
    for d in types:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [4, 2]), i32([0, 3, 1, 0]), i32([0, 0, 0, 1])])
    for i in ["int32", "int64"]:
      for g in ["int32", "int64"]:
        f.case("%s of %s rows by %s ids" % (op, i, g), op, [rnd("ss", "float", [4, 2]), t(i, [2, 2, 1]), t(g, [0, 0, 1])])
    f.case("%s with a gap" % op, op, [rnd("ss", "float", [4, 2]), i32([0, 1, 2]), i32([0, 2, 2])])
    f.case("%s of nothing" % op, op, [rnd("ss", "float", [4, 2]), i32([], [0]), i32([], [0])], grad=False)
    f.case("%s with a sparse gradient" % op, op, [rnd("ss", "float", [4, 2]), i32([3, 1, 3]), i32([0, 0, 1])], {"sparse_gradient": True})
    f.case("%s of a row too large" % op, op, [rnd("ss", "float", [4, 2]), i32([4]), i32([0])], error=True)
    f.case("%s of a negative row" % op, op, [rnd("ss", "float", [4, 2]), i32([-1]), i32([0])], error=True)
    f.case("%s of ids out of order" % op, op, [rnd("ss", "float", [4, 2]), i32([0, 1]), i32([1, 0])], error=True)
    f.case("%s of unequal lengths" % op, op, [rnd("ss", "float", [4, 2]), i32([0, 1]), i32([0])], error=True)
    for version in ["Grad", "GradV2"]:
      g = op + version
      for d in FLOATS:
        name = "%s of %s" % (g, d)
        f.case(name, g, [rnd(name, d, [2, 2]), i32([0, 3, 1, 0]), i32([0, 0, 0, 1]), i32(4)])
      for i in ["int32", "int64"]:
        for k in ["int32", "int64"]:
          f.case("%s of %s rows by %s ids" % (g, i, k), g, [rnd("sg", "float", [2, 2]), t(i, [2, 2, 1]), t(k, [0, 0, 1]), i32(3)])
      f.case("%s of a row too large" % g, g, [rnd("sg", "float", [1, 2]), i32([4]), i32([0]), i32(4)], error=True)
      f.case("%s of an id too large" % g, g, [rnd("sg", "float", [1, 2]), i32([1]), i32([1]), i32(4)], error=True)
  f.write()


if __name__ == "__main__":
  cast()
  array()
  strided()
  segments()
