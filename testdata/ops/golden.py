"""Runs single nodes and small graphs in TensorFlow and writes them down, with what came out, as JSON.

The make_*.py scripts beside this file describe the cases; README.md describes the format. Random values are drawn
from a generator seeded by the case's name, so a case keeps its values when others are added around it.
"""
import base64
import json
import os
import shutil
import sys
import tempfile
import zlib

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from tensorflow.core.framework import attr_value_pb2, graph_pb2, types_pb2  # noqa: E402
from tensorflow.python.framework import op_def_registry  # noqa: E402
from tensorflow.python.framework import errors_impl  # noqa: E402

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.FATAL)

STORAGE = {
    "float": np.float32, "double": np.float64, "half": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
    "complex64": np.complex64, "complex128": np.complex128, "bool": np.bool_, "string": np.object_,
    "qint8": np.int8, "quint8": np.uint8, "qint16": np.int16, "quint16": np.uint16, "qint32": np.int32,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    "float4_e2m1fn": getattr(ml_dtypes, "float4_e2m1fn", None),
    "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4,
    "int2": getattr(ml_dtypes, "int2", None), "uint2": getattr(ml_dtypes, "uint2", None),
}
FLOATS = ["float", "double", "half", "bfloat16"]
SMALL_FLOATS = ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"]
COMPLEX = ["complex64", "complex128"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTS = SIGNED + UNSIGNED
QUANTIZED = ["qint8", "quint8", "qint16", "quint16", "qint32"]
TINY_INTS = ["int4", "uint4", "int2", "uint2"]
REALS = FLOATS + INTS
NUMBERS = REALS + COMPLEX


def type_enum(name):
  return types_pb2.DataType.Value("DT_" + name.upper())


def type_name(enum):
  return types_pb2.DataType.Name(enum)[3:].lower()


class Tensor:
  """A dtype by TensorFlow's name and an array of the matching storage type."""

  def __init__(self, dtype, values, shape=None):
    self.dtype = dtype
    storage = STORAGE[dtype]
    if dtype == "string":
      flat = np.asarray(values, dtype=object)
      self.array = np.empty(flat.shape, dtype=object)
      for i in np.ndindex(flat.shape):
        self.array[i] = flat[i].encode() if isinstance(flat[i], str) else bytes(flat[i])
    elif dtype in INTS + QUANTIZED:
      self.array = np.asarray(values).astype(storage) if np.asarray(values).dtype != object else \
          np.array([int(v) for v in np.asarray(values).ravel()], dtype=storage).reshape(np.asarray(values).shape)
    else:
      with np.errstate(all="ignore"):
        self.array = np.asarray(values).astype(storage)
    if shape is not None:
      self.array = self.array.reshape(shape)

  @property
  def shape(self):
    return list(self.array.shape)

  def proto(self):
    p = tf.TensorShape(self.shape).as_proto()
    t = tf.make_tensor_proto(0.0)
    t.Clear()
    t.dtype = type_enum(self.dtype)
    t.tensor_shape.CopyFrom(p)
    if self.dtype == "string":
      t.string_val.extend(self.array.ravel().tolist())
    else:
      t.tensor_content = np.ascontiguousarray(self.array).tobytes()
    return t

  def json(self):
    return {"dtype": self.dtype, "shape": self.shape, "values": [scalar(self.dtype, v) for v in self.array.ravel()]}


def t(dtype, values, shape=None):
  return Tensor(dtype, values, shape)


class Ref(Tensor):
  """The first value of a reference variable that a node reads and writes."""


class Var(Tensor):
  """The first value of a resource variable that a node reads and writes."""


def ref(x):
  return Ref(x.dtype, x.array)


def var(x):
  return Var(x.dtype, x.array)


class Number(str):
  """Text that stands in the JSON as it is."""


def real(v, single):
  v = float(v)
  if v != v:
    return "nan"
  if v in (float("inf"), float("-inf")):
    return "inf" if v > 0 else "-inf"
  if single:
    s = str(np.float32(v))
    assert np.float32(float(s)) == np.float32(v)
  else:
    s = repr(v)
  if s.endswith(".0"):
    s = s[:-2] if s != "-0.0" else s
  return Number(s)


def text(b):
  if isinstance(b, str):
    b = b.encode()
  if all(32 <= c < 127 for c in b):
    return b.decode()
  return {"b64": base64.b64encode(b).decode()}


def scalar(dtype, v):
  if dtype == "string":
    return text(v)
  if dtype == "bool":
    return bool(v)
  if dtype in COMPLEX:
    return [real(v.real, dtype == "complex64"), real(v.imag, dtype == "complex64")]
  if dtype in FLOATS + SMALL_FLOATS:
    return real(v, dtype != "double")
  v = int(v)
  return v if abs(v) <= 1 << 53 else str(v)


def dump(x):
  """JSON text; like json.dumps, but knows Number."""
  if isinstance(x, Number):
    return str(x)
  if isinstance(x, dict):
    return "{" + ",".join(json.dumps(k) + ":" + dump(v) for k, v in x.items()) + "}"
  if isinstance(x, (list, tuple)):
    return "[" + ",".join(dump(v) for v in x) + "]"
  return json.dumps(x)


def from_run(value, dtype):
  """What Session.run returned, as a Tensor."""
  # As objects: an array of bytes would lose the zeros at the end of a string.
  array = np.asarray(value, dtype=object if dtype == "string" else None)
  if array.dtype.names:  # quantized types come as a struct of one field
    array = array[array.dtype.names[0]]
  if dtype == "string":
    out = np.empty(array.shape, dtype=object)
    for i in np.ndindex(array.shape):
      v = array[i]
      out[i] = v if isinstance(v, bytes) else str(v).encode()
    array = out
  return Tensor(dtype, array)


# Attributes ---------------------------------------------------------------------------------------------------------


def shape_json(p):
  return None if p.unknown_rank else [d.size for d in p.dim]


def proto_tensor_json(p):
  dtype = type_name(p.dtype)
  if dtype in ("resource", "variant"):
    raise ValueError("no text for " + dtype)
  return from_run(tf.make_ndarray(p), dtype).json() if dtype not in SMALL_FLOATS + TINY_INTS + QUANTIZED else \
      Tensor(dtype, np.frombuffer(p.tensor_content, STORAGE[dtype]), [d.size for d in p.tensor_shape.dim]).json()


def attr_json(a, kind):
  """An AttrValue as JSON; `kind` is the attribute's type in the op's definition."""
  which = a.WhichOneof("value")
  if kind.startswith("list("):
    kind = kind[5:-1]
    l = a.list
    return {"int": lambda: {"li": list(l.i)}, "float": lambda: {"lf": [real(f, True) for f in l.f]},
            "bool": lambda: {"lb": list(l.b)}, "string": lambda: {"ls": [text(s) for s in l.s]},
            "type": lambda: {"ltype": [type_name(x) for x in l.type]},
            "shape": lambda: {"lshape": [shape_json(s) for s in l.shape]}}[kind]()
  return {"type": lambda: {"type": type_name(a.type)}, "i": lambda: {"i": a.i if abs(a.i) <= 1 << 53 else str(a.i)},
          "b": lambda: {"b": a.b},
          "s": lambda: {"s": text(a.s)}, "f": lambda: {"f": real(a.f, True)},
          "shape": lambda: {"shape": shape_json(a.shape)},
          "tensor": lambda: {"tensor": proto_tensor_json(a.tensor)}}[which]()


def make_shape(dims):
  return tf.TensorShape(dims).as_proto()


def set_attr(a, kind, value):
  if kind.startswith("list("):
    a.list.SetInParent()
    kind = kind[5:-1]
    for v in value:
      if kind == "shape":
        a.list.shape.add().CopyFrom(make_shape(v))
      elif kind == "type":
        a.list.type.append(type_enum(v))
      elif kind == "string":
        a.list.s.append(v.encode() if isinstance(v, str) else v)
      else:
        getattr(a.list, {"int": "i", "float": "f", "bool": "b"}[kind]).append(v)
  elif kind == "type":
    a.type = type_enum(value)
  elif kind == "shape":
    a.shape.CopyFrom(make_shape(value))
  elif kind == "tensor":
    a.tensor.CopyFrom(value.proto())
  elif kind == "string":
    a.s = value.encode() if isinstance(value, str) else value
  else:
    setattr(a, {"int": "i", "float": "f", "bool": "b"}[kind], value)


def node_json(node):
  kinds = {a.name: a.type for a in op_def_registry.get(node.op).attr}
  attrs = {k: attr_json(node.attr[k], kinds[k]) for k in sorted(node.attr) if k in kinds}
  for k in sorted(node.attr):
    if k == "_class":
      attrs[k] = attr_json(node.attr[k], "list(string)")
  return {"name": node.name, "op": node.op, "attrs": attrs, "inputs": list(node.input)}


def fill_node(node, op, inputs, attrs):
  """Gives the node its attributes: from its inputs, from `attrs`, or by default."""
  definition = op_def_registry.get(op)
  attrs = dict(attrs)
  at = 0
  plain = [a for a in definition.input_arg if not a.number_attr and not a.type_list_attr]
  counted = [a for a in definition.input_arg if a.number_attr]
  for arg in definition.input_arg:
    if arg.number_attr:
      rest = len(inputs) - len(plain)
      count = attrs.setdefault(arg.number_attr, rest // len(counted))
      if arg.type_attr and count:
        attrs.setdefault(arg.type_attr, inputs[at].dtype)
      at += count
    elif arg.type_list_attr:
      count = len(attrs[arg.type_list_attr]) if arg.type_list_attr in attrs else len(inputs) - at
      attrs.setdefault(arg.type_list_attr, [x.dtype for x in inputs[at:at + count]])
      at += count
    else:
      if arg.type_attr:
        attrs.setdefault(arg.type_attr, inputs[at].dtype)
      at += 1
  for a in definition.attr:
    if a.name in attrs:
      set_attr(node.attr[a.name], a.type, attrs.pop(a.name))
    elif a.HasField("default_value"):
      node.attr[a.name].CopyFrom(a.default_value)
    else:
      raise ValueError("%s needs %s" % (op, a.name))
  assert not attrs, (op, attrs)


# Running ------------------------------------------------------------------------------------------------------------


def config():
  c = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
  c.graph_options.rewrite_options.disable_meta_optimizer = True
  c.graph_options.optimizer_options.opt_level = -1
  c.graph_options.optimizer_options.do_constant_folding = False
  return c


def error_json(e, contains):
  if isinstance(e, errors_impl.OpError):
    code, message = CODES[e.error_code], e.message
  else:
    code, message = "INVALID_ARGUMENT", str(e)
  out = {"code": code}
  if isinstance(contains, str):
    assert contains in message, message
    out["contains"] = contains
  if os.environ.get("GOLDEN_ERRORS"):
    print("   ", code, message.split("\n")[0][:160])
  return out


CODES = {1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND",
         6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION",
         10: "ABORTED", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS"}

def one_line(e):
  lines = [l for l in str(e).split("\n") if l.strip() and l.strip() not in ("Graph execution error:", "Detected at node 'y' defined at (most recent call last):")]
  return " | ".join(lines)[-240:]


RUN_ERRORS = (tf.errors.OpError, ValueError)


class NodeGraph:
  """A graph of one node under test and what feeds it."""

  def __init__(self, op, inputs, attrs, hide, ready=None):
    """With `hide`, shape inference knows nothing of the inputs; `ready` is a NodeDef whose attributes are taken as they are."""
    self.graph_def = g = graph_pb2.GraphDef()
    g.versions.producer = 1882
    names, self.setup, self.reads = [], [], []
    for i, x in enumerate(inputs):
      name = "x%d" % i
      if isinstance(x, Ref):
        v = g.node.add(name=name, op="VariableV2")
        fill_node(v, "VariableV2", [], {"dtype": x.dtype, "shape": x.shape})
        self.assign(g, name, x, "Assign", {"T": x.dtype})
        self.reads.append(name + ":0")
      elif isinstance(x, Var):
        v = g.node.add(name=name, op="VarHandleOp")
        fill_node(v, "VarHandleOp", [], {"dtype": x.dtype, "shape": x.shape, "shared_name": name})
        self.assign(g, name, x, "AssignVariableOp", {"dtype": x.dtype})
        r = g.node.add(name=name + "/read", op="ReadVariableOp", input=[name])
        fill_node(r, "ReadVariableOp", [x], {"dtype": x.dtype})
        self.reads.append(name + "/read:0")
      else:
        self.reads.append(None)
        if hide and x.dtype not in QUANTIZED + SMALL_FLOATS + TINY_INTS:
          # Behind this node neither shape nor value is known while the graph is built.
          self.const(g, name + "/value", x)
          p = g.node.add(name=name, op="PlaceholderWithDefault", input=[name + "/value"])
          fill_node(p, "PlaceholderWithDefault", [x], {"shape": None})
        else:
          self.const(g, name, x)
      names.append(name)
    self.node = g.node.add(name="y", op=op, input=names)
    if ready is None:
      fill_node(self.node, op, inputs, attrs)
    else:
      for k in ready.attr:
        self.node.attr[k].CopyFrom(ready.attr[k])

  def const(self, g, name, x):
    c = g.node.add(name=name, op="Const")
    fill_node(c, "Const", [], {"dtype": x.dtype, "value": x})

  def assign(self, g, name, x, op, attrs):
    self.const(g, name + "/initial", x)
    a = g.node.add(name=name + "/assign", op=op, input=[name, name + "/initial"])
    fill_node(a, op, [x, x], attrs)
    self.setup.append(name + "/assign")


class File:
  """Collects one family's cases and writes them."""

  def __init__(self, script, name):
    self.script, self.name, self.cases, self.names = os.path.basename(script), name, [], set()
    self.folder = os.path.dirname(os.path.abspath(script))
    self.failures = []

  def add(self, c):
    assert c["name"] not in self.names, c["name"]
    self.names.add(c["name"])
    self.cases.append(c)

  def case(self, name, op, inputs, attrs=None, error=None, grad=None, dy=None, tolerance=None, unset=()):
    """Runs one node. `error`: True or a piece of the message; `grad`: False to leave the gradient out; `dy`: which
    outputs get a gradient (all floating ones when None); `unset`: the outputs that TensorFlow leaves uninitialised."""
    try:
      self._case(name, op, inputs, attrs or {}, error, grad, dy, tolerance, unset)
    except Exception as e:  # a case that cannot be made is reported, not fatal
      self.failures.append((name, "%s: %s" % (type(e).__name__, one_line(e))))

  def _case(self, name, op, inputs, attrs, error, grad, dy, tolerance, unset):
    out = {"name": name, "op": op}
    stateful = any(isinstance(x, (Ref, Var)) for x in inputs)
    ng = NodeGraph(op, inputs, attrs, hide=True)
    out["attrs"] = node_json(ng.node)["attrs"]
    out["inputs"] = [{"ref": x.json()} if isinstance(x, Ref) else {"resource_variable": x.json()} if isinstance(x, Var)
                     else x.json() for x in inputs]
    try:
      outputs, after = self.run_node(ng)
      if error:
        raise AssertionError("no error in " + name)
      out["outputs"] = [None if i in unset else o.json() for i, o in enumerate(outputs)]
      if stateful:
        out["refs_after"] = [a.json() if a else None for a in after]
    except RUN_ERRORS as e:
      if not error:
        raise
      out["error"] = error_json(e, error)
      grad = False
    types = [x.dtype for x in inputs]
    if grad is not False and ("float" in types or "double" in types) and not any(x in types for x in ["half", "bfloat16"] + COMPLEX):
      g = self.gradient(name, op, inputs, attrs, outputs, dy)
      if g:
        out["grad"] = g
    if tolerance:
      out["tolerance"] = tolerance
    self.add(out)

  def run_node(self, ng):
    with tf.Graph().as_default() as graph:
      tf.import_graph_def(ng.graph_def, name="")
      node = graph.get_operation_by_name("y")
      with tf.Session(graph=graph, config=config()) as sess:
        if ng.setup:
          sess.run(ng.setup)
        fetches = list(node.outputs) or [node]
        values = sess.run(fetches)
        outputs = [from_run(v, type_name(o.dtype.base_dtype.as_datatype_enum)) for v, o in zip(values, node.outputs)]
        after = [from_run(sess.run(r), type_name(graph.get_tensor_by_name(r).dtype.base_dtype.as_datatype_enum))
                 if r else None for r in ng.reads]
        return outputs, after

  def gradient(self, name, op, inputs, attrs, outputs, dy_of):
    from tensorflow.python.framework import ops
    ng = NodeGraph(op, inputs, attrs, hide=False)
    with tf.Graph().as_default() as graph:
      tf.import_graph_def(ng.graph_def, name="")
      node = graph.get_operation_by_name("y")
      try:
        if ops.get_gradient_function(node) is None:
          return None
      except LookupError:
        return None
      floating = [o.dtype in ("float", "double") for o in outputs]
      wanted = [i for i, f in enumerate(floating) if f and (dy_of is None or i in dy_of)]
      if not wanted:
        return None
      dys = [rnd(name + "/dy%d" % i, outputs[i].dtype, outputs[i].shape) for i in range(len(outputs)) if i in wanted]
      xs = [node.inputs[i] for i, x in enumerate(inputs) if x.dtype in ("float", "double")]
      at = [i for i, x in enumerate(inputs) if x.dtype in ("float", "double")]
      ys = [node.outputs[i] for i in wanted]
      try:
        with graph.as_default():
          grads = tf.gradients(ys, xs, grad_ys=[tf.constant(d.array) for d in dys])
      except (LookupError, NotImplementedError, TypeError, ValueError) as e:
        print("  no gradient for %s: %s" % (name, str(e)[:120]))
        return None
      dx = [None] * len(inputs)
      with tf.Session(graph=graph, config=config()) as sess:
        if ng.setup:
          sess.run(ng.setup)
        for i, g in zip(at, grads):
          if g is None:
            continue
          if isinstance(g, tf.IndexedSlices):
            v = sess.run([g.values, g.indices] + ([g.dense_shape] if g.dense_shape is not None else []))
            s = {"values": from_run(v[0], inputs[i].dtype).json(),
                 "indices": from_run(v[1], type_name(g.indices.dtype.as_datatype_enum)).json()}
            if len(v) > 2:
              s["dense_shape"] = from_run(v[2], type_name(g.dense_shape.dtype.as_datatype_enum)).json()
            dx[i] = {"sparse": s}
          else:
            dx[i] = from_run(sess.run(g), inputs[i].dtype).json()
    by_output = dict(zip(wanted, dys))
    return {"dy": [by_output[i].json() if i in by_output else None for i in range(len(outputs))], "dx": dx}

  def graph(self, name, build, steps, files=None, whole=False):
    """Runs a small graph. `build` makes nodes in the default graph; a step is a dict of feeds, fetches, targets and
    error; `files` (name to bytes) lie in {TMP} before the first step; `whole` keeps the graph as a message, with its
    functions."""
    try:
      self._graph(name, build, steps, files or {}, whole)
    except Exception as e:
      self.failures.append((name, "%s: %s" % (type(e).__name__, one_line(e))))

  def _graph(self, name, build, steps, files, whole):
    with tf.Graph().as_default() as g:
      build()
      graph_def = g.as_graph_def()
    if whole:
      out = {"name": name, "graph_def": {"b64": base64.b64encode(graph_def.SerializeToString(deterministic=True)).decode()}}
    else:
      out = {"name": name, "graph": [node_json(n) for n in graph_def.node]}
    if files:
      out["files"] = {k: {"b64": base64.b64encode(v).decode()} for k, v in files.items()}
    out["steps"] = []
    tmp = tempfile.mkdtemp()
    try:
      for k, v in files.items():
        with open(os.path.join(tmp, k), "wb") as file:
          file.write(v)
      self.place(graph_def, tmp)
      with tf.Graph().as_default() as g:
        tf.import_graph_def(graph_def, name="")
        with tf.Session(graph=g, config=config()) as sess:
          for s in steps:
            out["steps"].append(self.step(g, sess, dict(s), tmp))
    finally:
      shutil.rmtree(tmp)
    self.add(out)

  def place(self, graph_def, tmp):
    for node in graph_def.node:
      for a in node.attr.values():
        if a.HasField("tensor") and a.tensor.dtype == types_pb2.DT_STRING:
          for i, s in enumerate(a.tensor.string_val):
            a.tensor.string_val[i] = s.replace(b"{TMP}", tmp.encode())
        elif a.WhichOneof("value") == "s":
          a.s = a.s.replace(b"{TMP}", tmp.encode())

  def step(self, g, sess, s, tmp):
    feeds = s.get("feeds", {})
    fetches = [f if ":" in f else f + ":0" for f in s.get("fetches", [])]
    targets = s.get("targets", [])
    out = {"feeds": {k if ":" in k else k + ":0": v.json() for k, v in feeds.items()}, "fetches": fetches,
           "targets": targets}
    feed = {}
    for k, v in feeds.items():
      a = v.array
      if v.dtype == "string":
        a = np.array(a, copy=True)
        for i in np.ndindex(a.shape):
          a[i] = a[i].replace(b"{TMP}", tmp.encode())
      feed[k if ":" in k else k + ":0"] = a
    try:
      values = sess.run([g.get_tensor_by_name(f) for f in fetches] + [g.get_operation_by_name(x) for x in targets], feed)
      assert not s.get("error"), "no error in step %s" % s
      outputs = [from_run(v, type_name(g.get_tensor_by_name(f).dtype.base_dtype.as_datatype_enum))
                 for v, f in zip(values, fetches)]
      for o in outputs:
        if o.dtype == "string":
          for i in np.ndindex(o.array.shape):
            o.array[i] = o.array[i].replace(tmp.encode(), b"{TMP}")
      out["outputs"] = [o.json() for o in outputs]
    except RUN_ERRORS as e:
      if not s.get("error"):
        raise
      out["error"] = error_json(e, s["error"])
    if "tolerance" in s:
      out["tolerance"] = s["tolerance"]
    return out

  def write(self):
    path = os.path.join(self.folder, self.name)
    lines = ",\n".join(dump(c) for c in self.cases)
    body = '{"script":%s,"tensorflow":%s,"cases":[\n%s\n]}\n' % (json.dumps(self.script), json.dumps(tf.__version__), lines)
    json.loads(body)
    with open(path + ".new", "w") as f:
      f.write(body)
    os.replace(path + ".new", path)
    print("%s: %d cases, %d bytes" % (self.name, len(self.cases), len(body)))
    for name, why in self.failures:
      print("  FAILED %s: %s" % (name, why))
    sys.stdout.flush()


# Values -------------------------------------------------------------------------------------------------------------

WORDS = ["", "a", "bee", "cat", "Dog", "eel\x00", "\xfc", "zebra zebra", "7", "x y"]


def rng(name):
  return np.random.RandomState(zlib.crc32(name.encode()) & 0xffffffff)


def rnd(name, dtype, shape, lo=None, hi=None):
  """Short random numbers in [lo, hi], of any dtype."""
  r = rng(name)
  shape = list(shape)
  if dtype == "bool":
    return t(dtype, r.rand(*shape) < 0.5, shape)
  if dtype == "string":
    return t(dtype, np.array([WORDS[i].encode("latin1") for i in r.randint(0, len(WORDS), int(np.prod(shape)))] + [b""],
                             dtype=object)[:-1], shape)
  if dtype in COMPLEX:
    lo, hi = -2 if lo is None else lo, 2 if hi is None else hi
    v = np.round(r.uniform(lo, hi, shape), 2) + 1j * np.round(r.uniform(lo, hi, shape), 2)
    return t(dtype, v, shape)
  if dtype in FLOATS:
    lo, hi = -2 if lo is None else lo, 2 if hi is None else hi
    return t(dtype, np.round(r.uniform(lo, hi, shape), 2), shape)
  if dtype in SMALL_FLOATS:
    return t(dtype, r.randint(-4, 5, shape) / 2.0, shape)
  unsigned = dtype in UNSIGNED + ["quint8", "quint16", "uint4", "uint2"]
  top = {"int4": 7, "uint4": 15, "int2": 1, "uint2": 3}.get(dtype, 9)
  lo = (0 if unsigned else -top) if lo is None else max(lo, 0) if unsigned else lo
  hi = top if hi is None else hi
  return t(dtype, r.randint(int(np.ceil(lo)), max(int(np.floor(hi)), int(np.ceil(lo))) + 1, shape), shape)


def i32(values, shape=None):
  return t("int32", values, shape)


def i64(values, shape=None):
  return t("int64", values, shape)


def f32(values, shape=None):
  return t("float", values, shape)


def f64(values, shape=None):
  return t("double", values, shape)


def s(values, shape=None):
  return t("string", values, shape)


def b(values, shape=None):
  return t("bool", values, shape)
