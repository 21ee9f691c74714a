"""Strings, files, examples, sparse tensors and summaries: strings_io, parse_example, sparse, summaries."""
import gzip
import io
import struct
import zlib as deflate

from golden import *

raw = tf.raw_ops
MOVED = NUMBERS + ["bool", "string"]
NAN, INF = float("nan"), float("inf")


def dt(name):
  return tf.as_dtype(type_enum(name))


def const(x, name):
  return tf.get_default_graph().create_op("Const", [], [dt(x.dtype)], name=name, attrs={
      "value": attr_value_pb2.AttrValue(tensor=x.proto()), "dtype": attr_value_pb2.AttrValue(type=type_enum(x.dtype))}).outputs[0]


def records(items, compression=""):
  """The bytes of a TFRecord file, as TensorFlow writes it."""
  folder = tempfile.mkdtemp()
  path = os.path.join(folder, "r")
  with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression)) as w:
    for x in items:
      w.write(x)
  with open(path, "rb") as file:
    data = file.read()
  shutil.rmtree(folder)
  return data


def strings_io():
  f = File(__file__, "strings_io.json")
  f.case("StringJoin of three", "StringJoin", [s(["a", "b"]), s(["c", ""]), s(["", "d"])])
  f.case("StringJoin with a separator and scalars", "StringJoin", [s("x"), s(["a", "b"]), s("y")], {"separator": "/"})
  f.case("StringJoin of one", "StringJoin", [s("x")])
  f.case("StringJoin of nothing", "StringJoin", [s([], [0]), s("x")])
  f.case("StringJoin of bytes", "StringJoin", [s(b"\x00\xff"), s(b"\n")], {"separator": "-"})
  f.case("StringJoin of shapes that differ", "StringJoin", [s(["a", "b"]), s(["a"])], error=True)
  f.case("ShardedFilename of two of ten", "ShardedFilename", [s("model"), i32(2), i32(10)])
  f.case("ShardedFilename beyond five digits", "ShardedFilename", [s("a/b"), i32(123456), i32(1234567)])
  for i, (p, xs) in enumerate([("a+b", ["ab", "aab", "b", "xab", "abx", ""]), (".*", ["", "any\nthing"]), ("s3://.*", ["s3://bucket", "/tmp/x"]), ("(foo|bar)[0-9]{2}", ["foo12", "bar1", "bar99"]),
                               ("\\d+\\.\\w*", ["12.ab_", "x.1", "3."]), ("[^/]*", ["abc", "a/b"]), ("(?i)AbC", ["abc", "ABD"]), ("\\p{Greek}", ["\u03b1", "a"])]):
    f.case("StaticRegexFullMatch number %d" % (i + 1), "StaticRegexFullMatch", [s(xs)], {"pattern": p})
  f.case("StaticRegexFullMatch of a scalar", "StaticRegexFullMatch", [s("s3://x")], {"pattern": "s3://.*"})
  f.case("StaticRegexFullMatch of a broken pattern", "StaticRegexFullMatch", [s("x")], {"pattern": "(x"}, error=True)
  long = ["", "a", "ab", "abc", "abcd", "hello world", "x" * 15, "y" * 16, "z" * 17, "q" * 31, "w" * 32, "v" * 33, "u" * 63, "t" * 64, "r" * 65, "s" * 127, "p" * 128, "o" * 200]
  for n in [1, 10, 1000003, 2**62]:
    f.case("StringToHashBucketFast into %d" % n, "StringToHashBucketFast", [s(long)], {"num_buckets": n})
  f.case("StringToHashBucketFast of bytes", "StringToHashBucketFast", [s([[b"\x00", b"\xff\xfe"], ["7", "-1"]])], {"num_buckets": 2**31})
  widths = {"bool": 1, "complex64": 8, "complex128": 16, "float": 4, "double": 8, "half": 2, "bfloat16": 2}
  for d in ["bfloat16", "bool", "complex128", "complex64", "double", "float", "half", "int16", "int32", "int64", "int8", "uint16", "uint8"]:
    x = rnd("raw" + d, d, [2, 2])
    rows = [x.array[i].tobytes() for i in range(2)]
    f.case("DecodeRaw of %s" % d, "DecodeRaw", [s(rows)], {"out_type": d})
    if d != "bool":
      swapped = [b"".join(r[i:i + k][::-1] for i in range(0, len(r), k)) for r in rows for k in [x.array.dtype.itemsize // (2 if d in COMPLEX else 1)]]
      f.case("DecodeRaw of big-endian %s" % d, "DecodeRaw", [s(swapped)], {"out_type": d, "little_endian": False})
  f.case("DecodeRaw of a scalar", "DecodeRaw", [s(b"\x01\x02\x03\x04")], {"out_type": "int16"})
  f.case("DecodeRaw of empty strings", "DecodeRaw", [s(["", ""])], {"out_type": "int16"})
  f.case("DecodeRaw of no strings", "DecodeRaw", [s([], [0])], {"out_type": "int16"})
  f.case("DecodeRaw of a length that does not divide", "DecodeRaw", [s(b"\x01\x02\x03")], {"out_type": "int16"}, error=True)
  f.case("DecodeRaw of unequal lengths", "DecodeRaw", [s([b"\x01\x02", b"\x01"])], {"out_type": "uint8"}, error=True)

  saved = ["float", "double", "half", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "string"]

  def save_restore():
    names = ["layer/" + d for d in saved]
    raw.SaveV2(prefix="{TMP}/ckpt", tensor_names=names, shape_and_slices=[""] * len(names), tensors=[const(rnd("save" + d, d, [2, 3]), "v_" + d) for d in saved], name="save")
    raw.RestoreV2(prefix="{TMP}/ckpt", tensor_names=names, shape_and_slices=[""] * len(names), dtypes=[dt(d) for d in saved], name="restore")
    raw.RestoreV2(prefix="{TMP}/ckpt", tensor_names=["missing"], shape_and_slices=[""], dtypes=[tf.float32], name="missing")
    raw.RestoreV2(prefix="{TMP}/ckpt", tensor_names=["layer/float"], shape_and_slices=[""], dtypes=[tf.int32], name="mistyped")
    raw.RestoreV2(prefix="{TMP}/none", tensor_names=["layer/float"], shape_and_slices=[""], dtypes=[tf.float32], name="no_file")
    raw.RestoreV2(prefix="{TMP}/ckpt", tensor_names=["layer/int64"], shape_and_slices=["2 3 0,2:1,2"], dtypes=[tf.int64], name="part")
    raw.RestoreV2(prefix="{TMP}/ckpt", tensor_names=["layer/int64"], shape_and_slices=["3 3 0,2:1,2"], dtypes=[tf.int64], name="misshaped")
  fetches = ["restore:%d" % i for i in range(len(saved))]
  f.graph("SaveV2 and RestoreV2 of every dtype", save_restore, [
      {"fetches": ["restore:0"], "error": True}, {"targets": ["save"]}, {"fetches": fetches}, {"fetches": ["missing:0"], "error": "missing"},
      {"fetches": ["mistyped:0"], "error": True}, {"fetches": ["no_file:0"], "error": True}, {"fetches": ["part:0"]}, {"fetches": ["misshaped:0"], "error": True}])

  def save_edge():
    raw.SaveV2(prefix="{TMP}/ckpt", tensor_names=["scalar", "empty", "words"], shape_and_slices=["", "", ""],
               tensors=[tf.constant(3.5), tf.zeros([0, 4]), tf.constant([b"", b"a\x00b", b"c" * 300])], name="save")
    raw.RestoreV2(prefix="{TMP}/ckpt", tensor_names=["words", "scalar", "empty"], shape_and_slices=["", "", ""], dtypes=[tf.string, tf.float32, tf.float32], name="restore")
  f.graph("SaveV2 of a scalar, of nothing and of long strings", save_edge, [{"targets": ["save"]}, {"fetches": ["restore:0", "restore:1", "restore:2"]}])

  def slices():
    x = np.arange(12, dtype=np.float32).reshape([4, 3])
    raw.SaveV2(prefix="{TMP}/part", tensor_names=["w", "w"], shape_and_slices=["4 3 0,2:-", "4 3 2,2:-"], tensors=[tf.constant(x[:2]), tf.constant(x[2:])], name="save")
    raw.RestoreV2(prefix="{TMP}/part", tensor_names=["w", "w", "w"], shape_and_slices=["", "4 3 2,2:-", "4 3 1,2:1,2"], dtypes=[tf.float32] * 3, name="restore")
  f.graph("SaveV2 of slices of one tensor", slices, [{"targets": ["save"]}, {"fetches": ["restore:0", "restore:1", "restore:2"]}])

  def merge():
    for i in range(2):
      raw.SaveV2(prefix="{TMP}/tmp/part-%d" % i, tensor_names=["v%d" % i], shape_and_slices=[""], tensors=[tf.constant([1. + i, 2.])], name="save%d" % i)
    raw.MergeV2Checkpoints(checkpoint_prefixes=["{TMP}/tmp/part-0", "{TMP}/tmp/part-1"], destination_prefix="{TMP}/whole", name="merge")
    raw.RestoreV2(prefix="{TMP}/whole", tensor_names=["v0", "v1"], shape_and_slices=["", ""], dtypes=[tf.float32] * 2, name="restore")
    raw.RestoreV2(prefix="{TMP}/tmp/part-0", tensor_names=["v0"], shape_and_slices=[""], dtypes=[tf.float32], name="gone")
    raw.MergeV2Checkpoints(checkpoint_prefixes=["{TMP}/nowhere"], destination_prefix="{TMP}/x", name="merge_none")
  f.graph("MergeV2Checkpoints joins two and removes them", merge, [
      {"targets": ["save0", "save1"]}, {"targets": ["merge"]}, {"fetches": ["restore:0", "restore:1"]}, {"fetches": ["gone:0"], "error": True}, {"targets": ["merge_none"], "error": True}])

  def saver():
    v = tf.Variable([1., 2.], name="v", use_resource=False)
    w = tf.Variable([[3, 4]], name="w", use_resource=True)
    saver = tf.train.Saver([v, w], sharded=True)
    tf.group(v.initializer, w.initializer, name="init")
    tf.group(tf.assign(v, [0., 0.]).op, tf.assign(w, [[0, 0]]).op, name="spoil")
    tf.identity(v, name="read_v")
    tf.identity(w, name="read_w")
  f.graph("a sharded Saver's graph", saver, [
      {"targets": ["init"]}, {"fetches": ["save/Identity"], "feeds": {"save/Const": s("{TMP}/model")}}, {"targets": ["spoil"]}, {"fetches": ["read_v", "read_w"]},
      {"targets": ["save/restore_all"], "feeds": {"save/Const": s("{TMP}/model")}}, {"fetches": ["read_v", "read_w"]}])

  def reader(compression, names, kind="TFRecordReaderV2", **options):
    def build():
      q = raw.FIFOQueueV2(component_types=[tf.string], shapes=[[]], name="q")
      raw.QueueEnqueueManyV2(handle=q, components=[["{TMP}/" + n for n in names]], name="fill")
      raw.QueueCloseV2(handle=q, name="close")
      if compression is not None:
        options["compression_type"] = compression
      r = getattr(raw, kind)(name="reader", **options)
      raw.ReaderReadV2(reader_handle=r, queue_handle=q, name="read")
      raw.ReaderNumRecordsProducedV2(reader_handle=r, name="count")
    return build
  read = {"fetches": ["read:0", "read:1"]}
  for c in ["", "ZLIB", "GZIP"]:
    data = records([b"one", b"", b"three" * 20], c)
    if c == "GZIP":  # the same bytes on every run
      data = gzip.compress(gzip.decompress(data), mtime=0)
    f.graph("TFRecordReaderV2 of %s files" % (c or "plain"), reader(c, ["a", "b"]),
            [{"targets": ["fill"]}, {"targets": ["close"]}, {"fetches": ["count"]}, read, read, read, {"fetches": ["count"]}, read, {"fetches": ["count"]}, dict(read, error=True)],
            files={"a": data, "b": records([b"four"], c) if c != "GZIP" else gzip.compress(records([b"four"]), mtime=0)})
  broken = bytearray(records([b"whole", b"broken"]))
  broken[-6] ^= 1
  f.graph("TFRecordReaderV2 of a broken record", reader("", ["a"]), [{"targets": ["fill"]}, {"targets": ["close"]}, read, dict(read, error=True)], files={"a": bytes(broken)})
  def reads(name, kind, files, count, **options):
    steps = [{"targets": ["fill"]}, {"targets": ["close"]}] + [read] * count + [{"fetches": ["count"]}, dict(read, error=True)]
    f.graph(name, reader(None, sorted(files), kind, **options), steps, files=files)
  texts = {"a": b"one\r\n\ntwo\n", "b": b"", "c": b"three\nfour"}
  reads("TextLineReaderV2 of several files", "TextLineReaderV2", texts, 5)
  reads("TextLineReaderV2 without the first lines", "TextLineReaderV2", texts, 3, skip_header_lines=1)
  reads("WholeFileReaderV2 of several files", "WholeFileReaderV2", texts, 3)
  numbers = {"a": bytes(range(20)), "b": bytes(range(100, 107)), "c": b""}
  reads("FixedLengthRecordReaderV2 of several files", "FixedLengthRecordReaderV2", numbers, 6, record_bytes=4)
  reads("FixedLengthRecordReaderV2 between header and footer", "FixedLengthRecordReaderV2", numbers, 6, header_bytes=2, record_bytes=3, footer_bytes=2)
  reads("FixedLengthRecordReaderV2 of overlapping records", "FixedLengthRecordReaderV2", {"a": bytes(range(10))}, 4, record_bytes=4, hop_bytes=2)
  reads("FixedLengthRecordReaderV2 with bytes between", "FixedLengthRecordReaderV2", {"a": bytes(range(12))}, 3, record_bytes=2, hop_bytes=5)
  reads("FixedLengthRecordReaderV2 of packed files", "FixedLengthRecordReaderV2", {"a": deflate.compress(bytes(range(10)))}, 5, record_bytes=2, encoding="ZLIB")
  f.graph("TFRecordReaderV2 of a missing file", reader("", ["none"]), [{"targets": ["fill"]}, {"targets": ["close"]}, dict(read, error=True)])
  f.write()


def example(**features):
  e = tf.train.Example()
  for k in sorted(features):
    kind, values = features[k]
    getattr(e.features.feature[k], kind).value.extend(values)
  return e.SerializeToString(deterministic=True)


def parse_example():
  f = File(__file__, "parse_example.json")
  one = example(a=("float_list", [1.5, 2.5]), i=("int64_list", [7]), w=("bytes_list", [b"x", b"yy"]), v=("int64_list", [1, 2, 3]))
  two = example(a=("float_list", [3.5, 4.5]), w=("bytes_list", [b"z"]), v=("int64_list", []))
  three = example(a=("float_list", [0, 1]), i=("int64_list", [9]))

  def case(name, serialized, sparse=(), dense=(), ragged=(), error=None, names=s([], [0])):
    """sparse: (key, dtype); dense: (key, default, shape); ragged: (key, dtype, split dtype)."""
    f.case(name, "ParseExampleV2",
           [serialized, names, s([k for k, _ in sparse], [len(sparse)]), s([k for k, _, _ in dense], [len(dense)]), s([k for k, _, _ in ragged], [len(ragged)])] +
           [d for _, d, _ in dense],
           {"num_sparse": len(sparse), "sparse_types": [d for _, d in sparse], "Tdense": [d.dtype for _, d, _ in dense], "dense_shapes": [x for _, _, x in dense],
            "ragged_value_types": [d for _, d, _ in ragged], "ragged_split_types": [d for _, _, d in ragged]}, error=error)

  batch = s([one, two, three])
  need = lambda d: t(d, [], [0])
  case("ParseExampleV2 of dense features", batch, dense=[("a", need("float"), [2]), ("i", i64(-1), [])])
  case("ParseExampleV2 of sparse features", batch, sparse=[("w", "string"), ("v", "int64"), ("a", "float")])
  case("ParseExampleV2 of ragged features", batch, ragged=[("w", "string", "int32"), ("v", "int64", "int64")])
  case("ParseExampleV2 of all kinds", batch, sparse=[("w", "string")], dense=[("a", need("float"), [2])], ragged=[("v", "int64", "int64")])
  case("ParseExampleV2 of a variable length padded", batch, dense=[("v", i64(0), [None])])
  case("ParseExampleV2 of a scalar", s(one), sparse=[("w", "string")], dense=[("a", need("float"), [2]), ("i", i64(-1), [])])
  case("ParseExampleV2 of a missing key with a default", batch, dense=[("nothing", f32([5, 6]), [2])])
  case("ParseExampleV2 of a missing sparse key", batch, sparse=[("nothing", "float")])
  case("ParseExampleV2 of no examples", s([], [0]), sparse=[("w", "string")], dense=[("a", need("float"), [2])])
  case("ParseExampleV2 of a missing key without a default", batch, dense=[("i", need("int64"), [])], error="i")
  case("ParseExampleV2 of another dtype", batch, dense=[("a", need("int64"), [2])], error="a")
  case("ParseExampleV2 of another size", batch, dense=[("a", need("float"), [3])], error="a")
  case("ParseExampleV2 of bytes that are none", s([b"\x0a\xffgarbage"]), dense=[("a", need("float"), [2])], error=True)
  f.write()


def sparse():
  f = File(__file__, "sparse.json")
  for d in MOVED:
    name = "SparseFillEmptyRows of %s" % d
    f.case(name, "SparseFillEmptyRows", [i64([[0, 1], [2, 0], [2, 3]]), rnd(name, d, [3]), i64([4, 4]), rnd(name + "d", d, [])], dy=[1])
  f.case("SparseFillEmptyRows of full rows", "SparseFillEmptyRows", [i64([[0, 1], [1, 0]]), f32([1, 2]), i64([2, 2]), f32(9)], dy=[1])
  f.case("SparseFillEmptyRows of nothing", "SparseFillEmptyRows", [i64([], [0, 2]), f32([], [0]), i64([2, 2]), f32(9)], dy=[1])
  f.case("SparseFillEmptyRows of no rows", "SparseFillEmptyRows", [i64([], [0, 2]), f32([], [0]), i64([0, 2]), f32(9)], grad=False)
  f.case("SparseFillEmptyRows of rows out of order", "SparseFillEmptyRows", [i64([[2, 0], [0, 1]]), f32([1, 2]), i64([3, 2]), f32(9)], grad=False)
  f.case("SparseFillEmptyRows of a row too large", "SparseFillEmptyRows", [i64([[5, 0]]), f32([1]), i64([2, 2]), f32(9)], error=True)
  f.case("SparseFillEmptyRows of a vector default", "SparseFillEmptyRows", [i64([[0, 0]]), f32([1]), i64([2, 2]), f32([9])], error=True)
  f.case("SparseReshape to a matrix", "SparseReshape", [i64([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 2, 3]]), i64([2, 3, 6]), i64([9, 4])])
  f.case("SparseReshape to an unknown size", "SparseReshape", [i64([[0, 1], [2, 1]]), i64([3, 2]), i64([-1])])
  f.case("SparseReshape of nothing", "SparseReshape", [i64([], [0, 2]), i64([3, 2]), i64([2, -1])])
  f.case("SparseReshape to another size", "SparseReshape", [i64([[0, 1]]), i64([3, 2]), i64([4])], error=True)
  f.case("SparseReshape to two unknown sizes", "SparseReshape", [i64([[0, 1]]), i64([3, 2]), i64([-1, -1])], error=True)
  for d in MOVED + ["qint8", "quint8", "qint16", "quint16"]:
    name = "SparseToDense of %s" % d
    f.case(name, "SparseToDense", [i32([[0, 1], [1, 0]]), i32([2, 2]), rnd(name, d, [2]), rnd(name + "d", d, [])])
  f.case("SparseToDense by int64", "SparseToDense", [i64([[0, 1], [1, 0]]), i64([2, 2]), f32([1, 2]), f32(0)])
  f.case("SparseToDense of a vector", "SparseToDense", [i32([1, 3]), i32([4]), f32([5, 6]), f32(-1)])
  f.case("SparseToDense of one value for all", "SparseToDense", [i32([1, 3]), i32([4]), f32(5), f32(0)])
  f.case("SparseToDense of a scalar index", "SparseToDense", [i32(1), i32([4]), f32(5), f32(0)])
  f.case("SparseToDense of nothing", "SparseToDense", [i32([], [0, 1]), i32([4]), f32([], [0]), f32(1)])
  f.case("SparseToDense out of order unvalidated", "SparseToDense", [i32([3, 1]), i32([4]), f32([5, 6]), f32(0)], {"validate_indices": False})
  f.case("SparseToDense out of order", "SparseToDense", [i32([3, 1]), i32([4]), f32([5, 6]), f32(0)], error=True)
  f.case("SparseToDense of one place twice", "SparseToDense", [i32([1, 1]), i32([4]), f32([5, 6]), f32(0)], error=True)
  f.case("SparseToDense of an index too large", "SparseToDense", [i32([4]), i32([4]), f32([5]), f32(0)], error=True)
  f.case("SparseToDense of unequal numbers", "SparseToDense", [i32([0, 1]), i32([4]), f32([5, 6, 7]), f32(0)], error=True)

  def cross(name, sparse, dense, **attrs):
    """sparse: (indices, values, shape)."""
    a = dict({"N": len(sparse), "hashed_output": False, "num_buckets": 0, "hash_key": 956888297470, "out_type": "string", "internal_type": "string",
              "sparse_types": [v.dtype for _, v, _ in sparse], "dense_types": [d.dtype for d in dense]}, **attrs)
    f.case(name, "SparseCross", [i64(i) if len(i) else i64([], [0, 2]) for i, _, _ in sparse] + [v for _, v, _ in sparse] + [i64(x) for _, _, x in sparse] + dense, a)
  p = ([[0, 0], [1, 0], [1, 1]], s(["a", "b", "c"]), [2, 2])
  q = ([[0, 0], [1, 0], [1, 1]], s(["d", "e", "f"]), [2, 2])
  n = ([[0, 0], [1, 0]], i64([7, 8]), [2, 1])
  cross("SparseCross of two", [p, q], [])
  cross("SparseCross of sparse and dense", [p], [s([["g"], ["h"]])])
  cross("SparseCross of dense", [], [s([["g", "i"], ["h", "j"]]), s([["k"], ["l"]])])
  cross("SparseCross of three with integers as text", [p, q], [s([["g"], ["h"]])], internal_type="string")
  hashed = {"hashed_output": True, "out_type": "int64", "internal_type": "int64"}
  cross("SparseCross hashed", [(p[0], i64([1, 2, 3]), p[2]), n], [], num_buckets=100, **hashed)
  cross("SparseCross hashed of dense integers", [(p[0], i64([1, 2, 3]), p[2])], [i64([[5], [6]])], num_buckets=1000, **hashed)
  cross("SparseCross hashed without buckets", [(p[0], i64([1, 2, 3]), p[2]), n], [], **hashed)
  cross("SparseCross hashed of strings", [p, q], [], num_buckets=1000, hashed_output=True, out_type="int64", internal_type="string")
  cross("SparseCross of integers hashed with another key", [n, n], [], num_buckets=100, hashed_output=True, out_type="int64", internal_type="int64", hash_key=17)
  f.write()


def summaries():
  f = File(__file__, "summaries.json")
  for d in REALS:
    f.case("ScalarSummary of %s" % d, "ScalarSummary", [s("loss"), t(d, 3)])
    name = "HistogramSummary of %s" % d
    f.case(name, "HistogramSummary", [s("weights"), rnd(name, d, [6])])
  f.case("ScalarSummary of several", "ScalarSummary", [s(["a", "b"]), f32([0.1, 2])])
  f.case("ScalarSummary of NaN", "ScalarSummary", [s("loss"), f32(NAN)])
  f.case("ScalarSummary of unequal shapes", "ScalarSummary", [s(["a", "b"]), f32(1)], error=True)
  f.case("HistogramSummary of a scalar", "HistogramSummary", [s("w"), f32(0)])
  f.case("HistogramSummary of nothing", "HistogramSummary", [s("w"), f32([], [0])])
  f.case("HistogramSummary of large and small", "HistogramSummary", [s("w"), f32([1e20, -1e20, 1e-20, 0, -1e-13, 1e30])])
  f.case("HistogramSummary of NaN", "HistogramSummary", [s("w"), f32([1, NAN])], error=True)
  f.case("HistogramSummary of infinity", "HistogramSummary", [s("w"), f32([1, INF])], error=True)
  f.case("HistogramSummary of two tags", "HistogramSummary", [s(["w", "v"]), f32([1])], error=True)
  for d in MOVED:
    name = "TensorSummaryV2 of %s" % d
    f.case(name, "TensorSummaryV2", [s("t"), rnd(name, d, [2, 2]), s("")])
  f.case("TensorSummaryV2 with metadata", "TensorSummaryV2", [s("t"), f32([1, 2]), s(b"\x0a\x07\x0a\x05hello")])

  def summary(d):
    return tf.Summary.FromString(d)
  a = tf.Summary(value=[tf.Summary.Value(tag="a", simple_value=1)]).SerializeToString()
  c = tf.Summary(value=[tf.Summary.Value(tag="c", simple_value=2)]).SerializeToString()
  f.case("MergeSummary of two", "MergeSummary", [s(a), s(c)])
  f.case("MergeSummary of a vector", "MergeSummary", [s([a, c])])
  f.case("MergeSummary of one tag twice", "MergeSummary", [s(a), s(a)], error=True)
  f.case("MergeSummary of bytes that are none", "MergeSummary", [s(b"\x0a\xff")], error=True)
  red = t("uint8", [255, 0, 0, 255])
  for d, hi in [("uint8", 255), ("float", 1), ("half", 1), ("double", 1)]:
    for channels in [1, 3, 4]:
      name = "ImageSummary of %s with %d channels" % (d, channels)
      f.case(name, "ImageSummary", [s("image"), rnd(name, d, [2, 2, 3, channels], 0 if d == "uint8" or channels == 1 else -1, hi)], {"bad_color": red})
  f.case("ImageSummary of more than asked for", "ImageSummary", [s("image"), rnd("im", "uint8", [3, 1, 1, 1], 0, 255)], {"max_images": 1, "bad_color": red})
  f.case("ImageSummary of NaN shows the bad colour", "ImageSummary", [s("image"), f32([1, NAN, 0.5, 0], [1, 2, 2, 1])], {"bad_color": red})
  f.case("ImageSummary of two channels", "ImageSummary", [s("image"), rnd("im", "uint8", [1, 1, 1, 2])], {"bad_color": red}, error=True)
  f.case("ImageSummary of rank three", "ImageSummary", [s("image"), rnd("im", "uint8", [1, 1, 1])], {"bad_color": red}, error=True)
  f.write()


if __name__ == "__main__":
  strings_io()
  parse_example()
  sparse()
  summaries()
