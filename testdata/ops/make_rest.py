"""Ops on text, files, slices and bits beyond the first tiers: texts, scatter_nd, bits."""
from golden import *

raw = tf.raw_ops


def dt(name):
  return tf.as_dtype(type_enum(name))


def texts():
  f = File(__file__, "texts.json")
  words = t("string", ["Hello World", "", "  pad\t\n", "\u00c4\u00d6 \u00df \u20ac x".encode(), "a,b;c,,d"])
  for op in ["StringLower", "StringUpper"]:
    f.case("%s of bytes" % op, op, [words])
    f.case("%s of utf-8" % op, op, [words], {"encoding": "utf-8"})
  f.case("StringStrip", "StringStrip", [words])
  for unit in ["BYTE", "UTF8_CHAR"]:
    f.case("Substr by %s" % unit, "Substr", [t("string", ["Hello", "h\u00e4\u00df\u20ac!".encode()]), i32(1), i32(3)], {"unit": unit})
    f.case("Substr from the end by %s" % unit, "Substr", [t("string", ["Hello", "h\u00e4\u00df\u20ac!".encode()]), i32(-2), i32(9)], {"unit": unit})
  f.case("Substr of each", "Substr", [t("string", ["Hello", "World"]), i64([0, 2]), i64([2, 9])])
  f.case("Substr spread over both", "Substr", [t("string", [["Hello", "World"]]), i64([[1], [2]]), i64([[2], [1]])])
  f.case("Substr beyond the end", "Substr", [t("string", ["ab"]), i32(3), i32(1)], error=True)
  f.case("Substr of shapes that differ", "Substr", [t("string", ["ab"]), i32([0]), i32(1)], error=True)
  for d, values in [("float", ["1.5", "-2e3", " 7 ", "inf"]), ("double", ["1e-300", "3"]), ("int32", ["12", "-7", " 5"]), ("int64", ["9007199254740993", "-1"]),
                    ("uint32", ["4294967295"]), ("uint64", ["18446744073709551615"])]:
    f.case("StringToNumber of %s" % d, "StringToNumber", [t("string", values)], {"out_type": d})
    f.case("StringToNumber of no %s" % d, "StringToNumber", [t("string", ["x1"])], {"out_type": d}, error="x1")
  f.case("StringSplit", "StringSplit", [words, t("string", " ,")])
  f.case("StringSplit with empty parts", "StringSplit", [words, t("string", ",;")], {"skip_empty": False})
  f.case("StringSplit into bytes", "StringSplit", [t("string", ["abc", ""]), t("string", "")])
  f.case("StringSplit of a scalar", "StringSplit", [t("string", "a b"), t("string", " ")], error=True)
  f.case("StringSplitV2 at blanks", "StringSplitV2", [words, t("string", "")])
  f.case("StringSplitV2 at a comma", "StringSplitV2", [words, t("string", ",")])
  f.case("StringSplitV2 at most once", "StringSplitV2", [t("string", ["a b  c ", "a--b--c"]), t("string", "--")], {"maxsplit": 1})
  f.case("StringSplitV2 at blanks at most once", "StringSplitV2", [t("string", ["a b  c ", " x"]), t("string", "")], {"maxsplit": 1})
  f.case("StaticRegexReplace", "StaticRegexReplace", [words], {"pattern": "([a-z])l", "rewrite": "<\\1>$"})
  f.case("StaticRegexReplace once", "StaticRegexReplace", [words], {"pattern": "l", "rewrite": "L", "replace_global": False})
  f.case("RegexReplace", "RegexReplace", [words, t("string", "[aeiou]"), t("string", "_")])
  f.case("RegexReplace by a bad pattern", "RegexReplace", [words, t("string", "(a"), t("string", "_")], error=True)
  f.case("StringToHashBucketStrong", "StringToHashBucketStrong", [words], {"num_buckets": 1000003, "key": [123, 456]})
  for pad in [True, False]:
    f.case("EncodeBase64 %s padding" % ("with" if pad else "without"), "EncodeBase64", [t("string", ["", "a", "ab", "abc", b"\xff\xfe\xfd\xfc"])], {"pad": pad})
  f.case("DecodeBase64", "DecodeBase64", [t("string", ["", "YQ", "YQ==", "__79_A"])])
  f.case("DecodeBase64 of what is none", "DecodeBase64", [t("string", ["Y"])], error=True)
  for axes, keep in [([0], False), ([1], False), ([-1], True), ([0, 1], False), ([1, 0], False), ([], False)]:
    f.case("ReduceJoin along %s%s" % (axes, " kept" if keep else ""), "ReduceJoin", [t("string", [["a", "b", "c"], ["d", "e", "f"]]), i32(axes, [len(axes)])], {"keep_dims": keep, "separator": "-"})
  f.case("ReduceJoin along a missing axis", "ReduceJoin", [t("string", ["a"]), i32([1])], error=True)
  for d in ["float", "int32", "string", "bool", "complex64", "variant"]:
    if d != "variant":
      x = rnd("ser" + d, d, [2, 2])
      f.graph("ParseTensor of SerializeTensor of %s" % d,
              lambda: raw.ParseTensor(serialized=raw.SerializeTensor(tensor=tf.constant(x.array.tolist() if d == "string" else x.array, dt(d))), out_type=dt(d), name="y"), [{"fetches": ["y"]}])
  f.case("ParseTensor of another type", "ParseTensor", [t("string", tf.make_tensor_proto([1, 2]).SerializeToString())], {"out_type": "float"}, error=True)
  f.case("ParseTensor of no tensor", "ParseTensor", [t("string", "abc")], {"out_type": "float"}, error=True)
  name = "{TMP}/folder/a.txt"

  def files():
    raw.WriteFile(filename=name, contents=b"some\x00bytes", name="write")
    raw.ReadFile(filename=name, name="y")
    raw.MatchingFiles(pattern=["{TMP}/*.md", "{TMP}/folder/?.txt", "{TMP}/none*"], name="names")
  f.graph("files written, found and read", files, [{"fetches": ["y"], "error": True}, {"targets": ["write"]}, {"fetches": ["y", "names"]}], files={"x.md": b"", "y.md": b"", "z.txt": b""})
  f.case("Print passes its input", "Print", [f32([1, 2]), i32([3])], {"message": "seen: "})
  f.write()


def scatter_nd():
  f = File(__file__, "scatter_nd.json")
  table, by, rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9]], i32([[2], [0], [2]]), [[1, 1, 1], [2, 2, 2], [3, 3, 3]]
  at, single = i32([[0, 1], [2, 2], [0, 1]]), [10, 20, 30]
  for d in NUMBERS:
    for op, wrap in [("ScatterNdAdd", ref), ("ScatterNdSub", ref), ("ScatterNdUpdate", ref), ("ResourceScatterNdAdd", var), ("ResourceScatterNdSub", var),
                     ("ResourceScatterNdUpdate", var), ("TensorScatterAdd", lambda x: x), ("TensorScatterSub", lambda x: x), ("TensorScatterUpdate", lambda x: x)]:
      f.case("%s of %s" % (op, d), op, [wrap(t(d, table)), by, t(d, rows)], grad=False if op.endswith("Update") else None)
      if d in ["float", "int32"]:
        f.case("%s of single %s" % (op, d), op, [wrap(t(d, table)), at, t(d, single)])
  f.case("TensorScatterUpdate of different places", "TensorScatterUpdate", [t("double", table), i32([[2], [0]]), t("double", rows[:2])])
  for d in REALS:
    for op in ["TensorScatterMin", "TensorScatterMax"]:
      f.case("%s of %s" % (op, d), op, [t(d, table), at, t(d, [5, 4, 1])], grad=False)
  for d in ["bool", "string"]:
    x = rnd("snd" + d, d, [3, 2])
    f.case("TensorScatterUpdate of %s" % d, "TensorScatterUpdate", [x, i32([[1], [0]]), rnd("snu" + d, d, [2, 2])])
    f.case("ScatterNdUpdate of %s" % d, "ScatterNdUpdate", [ref(x), i32([[1], [0]]), rnd("snu" + d, d, [2, 2])])
  for op, wrap in [("ScatterNdAdd", ref), ("TensorScatterUpdate", lambda x: x)]:
    f.case("%s beyond the end" % op, op, [wrap(f32([1, 2])), i32([[2]]), f32([5])], error="2")
    f.case("%s of another shape" % op, op, [wrap(f32([1, 2])), i32([[1]]), f32([5, 6])], error=True)
    f.case("%s of nothing" % op, op, [wrap(f32([1, 2])), i32([], [0, 1]), f32([], [0])])
  ids = i32([0, 0, 2, 2])
  data = [[1, 2], [3, 4], [5, 6], [8, 7]]
  for op, types in [("SegmentMax", REALS), ("SegmentMin", REALS), ("SegmentProd", NUMBERS), ("SegmentMean", NUMBERS)]:
    for d in types:
      f.case("%s of %s" % (op, d), op, [t(d, data), ids], grad=False)
    f.case("%s of ids that fall" % op, op, [f32([1, 2]), i32([1, 0])], error=True)
    f.case("%s of too few ids" % op, op, [f32([1, 2]), i32([1])], error=True)
  for op, types in [("UnsortedSegmentMax", REALS), ("UnsortedSegmentMin", REALS), ("UnsortedSegmentProd", NUMBERS)]:
    for d in types:
      f.case("%s of %s" % (op, d), op, [t(d, data), i64([2, 0, -1, 2]), i32(4)], grad=False)
    f.case("%s of an id too large" % op, op, [f32([1, 2]), i32([1, 4]), i32(2)], error=True)
    f.case("%s of a matrix of ids" % op, op, [f32([[1, 2], [3, 4]]), i32([[1, 0], [1, 1]]), i32(2)], grad=False)
  for d in NUMBERS:
    for op, wrap in [("ScatterMul", ref), ("ScatterDiv", ref), ("ResourceScatterMul", var), ("ResourceScatterDiv", var)]:
      f.case("%s of %s" % (op, d), op, [wrap(t(d, [[4, 6], [8, 12]])), i32([1, 0, 1]), t(d, [[2, 2], [1, 3], [2, 3]])])
  for d in REALS:
    for op, wrap in [("ScatterMin", ref), ("ScatterMax", ref), ("ResourceScatterMin", var), ("ResourceScatterMax", var)]:
      if wrap is ref and d not in ["half", "bfloat16", "float", "double", "int32", "int64"]:
        continue
      f.case("%s of %s" % (op, d), op, [wrap(t(d, [[4, 6], [8, 12]])), i32([1, 0, 1]), t(d, [[2, 2], [1, 9], [2, 30]])])
  f.write()


def bits():
  f = File(__file__, "bits.json")
  for d in INTS:
    x, z = rnd("bx" + d, d, [2, 3]), rnd("by" + d, d, [2, 3])
    for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
      f.case("%s of %s" % (op, d), op, [x, z])
    for op in ["LeftShift", "RightShift"]:
      f.case("%s of %s" % (op, d), op, [x, t(d, [[0, 1, 2]])])
    f.case("Invert of %s" % d, "Invert", [x])
  for a, c in [("float", "int32"), ("int32", "float"), ("double", "int64"), ("uint8", "int8"), ("float", "uint8"), ("int16", "int64"), ("complex64", "float")]:
    shape = [2, 4]
    f.case("Bitcast of %s to %s" % (a, c), "Bitcast", [rnd("bc" + a, a, shape)], {"type": c}, grad=False)
  f.case("Bitcast of what does not fit", "Bitcast", [t("uint8", [1, 2, 3])], {"type": "float"}, error=True)
  for d in NUMBERS + ["bool"]:
    f.case("MatrixBandPart of %s" % d, "MatrixBandPart", [rnd("mbp" + d, d, [2, 3, 3]), i64(1), i64(0)])
  for lo, up in [(-1, 0), (0, -1), (0, 0), (2, 1), (-1, -1)]:
    f.case("MatrixBandPart %d below and %d above" % (lo, up), "MatrixBandPart", [rnd("mb", "float", [3, 4]), i32(lo), i32(up)])
  f.case("MatrixBandPart of a vector", "MatrixBandPart", [f32([1]), i64(0), i64(0)], error=True)
  f.case("MatrixBandPart wider than it is", "MatrixBandPart", [f32([[1]]), i64(2), i64(0)], error=True)
  for d in NUMBERS + ["bool", "string"]:
    f.case("Roll of %s" % d, "Roll", [rnd("roll" + d, d, [5]), i32(2), i32(0)])
  for shift, axis in [([1, -1], [0, 1]), ([7], [-1]), ([2, 2], [1, 1])]:
    f.case("Roll by %s along %s" % (shift, axis), "Roll", [rnd("roll", "float", [3, 4]), i64(shift), i32(axis)])
  f.case("Roll of a scalar", "Roll", [f32(1), i32(1), i32(0)], error=True)
  f.case("Roll along a missing axis", "Roll", [f32([1]), i32(1), i32(1)], error=True)
  for d in ["float", "string", "int64"]:
    f.case("EnsureShape of %s" % d, "EnsureShape", [rnd("es" + d, d, [2, 3])], {"shape": [None, 3]})
  f.case("EnsureShape of another shape", "EnsureShape", [f32([1, 2])], {"shape": [3]}, error=True)
  for d in REALS + ["bool", "string"]:
    f.case("UniqueWithCounts of %s" % d, "UniqueWithCounts", [t(d, ["b", "a", "b"] if d == "string" else [1, 0, 1, 1])])
  f.case("UniqueWithCounts of a matrix", "UniqueWithCounts", [f32([[1]])], error=True)
  for d in ["float", "double"]:
    for a, c, n in [(1, 2, 5), (5, -1, 3), (2, 9, 1)]:
      f.case("LinSpace of %s from %d to %d in %d" % (d, a, c, n), "LinSpace", [t(d, a), t(d, c), i32(n)])
  f.case("LinSpace of none", "LinSpace", [f32(1), f32(2), i64(0)], error=True)
  for d in FLOATS + ["int32", "int64", "int8", "int16", "uint8", "uint16"]:
    f.case("ClipByValue of %s" % d, "ClipByValue", [t(d, [[1, 5], [9, 3]]), t(d, 2), t(d, 6)], grad=False)
  f.case("ClipByValue by each", "ClipByValue", [f32([1, 5, 9]), f32([2, 2, 2]), f32([3, 9, 4])], grad=False)
  f.write()


if __name__ == "__main__":
  texts()
  scatter_nd()
  bits()
