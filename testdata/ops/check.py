"""Replays the data in TensorFlow from the JSON alone, to see that nothing is missing in it. Usage: check.py [file…]"""
import glob
import sys

sys.dont_write_bytecode = True
from golden import *  # noqa: E402

TOLERANCE = {"float": 1e-5, "double": 1e-12, "half": 4e-3, "bfloat16": 3e-2, "complex64": 1e-5, "complex128": 1e-12}


def number(v):
  return float(v) if isinstance(v, str) else v


def read_text(v):
  return base64.b64decode(v["b64"]) if isinstance(v, dict) else v.encode()


def read(j):
  d = j["dtype"]
  if d == "string":
    values = np.empty([len(j["values"])], object)
    values[:] = [read_text(v) for v in j["values"]]
  elif d in COMPLEX:
    values = [complex(number(a), number(c)) for a, c in j["values"]]
  elif d in FLOATS + SMALL_FLOATS:
    values = [number(v) for v in j["values"]]
  elif d == "bool":
    values = j["values"]
  else:
    values = np.array([int(v) for v in j["values"]], dtype=object)
  return Tensor(d, values, j["shape"])


def same(got, want, tolerance=None):
  assert got.dtype == want.dtype and got.shape == want.shape, (got.json(), want.json())
  if want.dtype in TOLERANCE:
    limit = tolerance or TOLERANCE[want.dtype]
    wide = np.complex128 if want.dtype in COMPLEX else np.float64
    np.testing.assert_allclose(got.array.astype(wide), want.array.astype(wide), rtol=limit, atol=limit)
  else:
    assert (got.array == want.array).all(), (got.json(), want.json())


def set_attrs(node, attrs):
  kinds = {a.name: a.type for a in op_def_registry.get(node.op).attr}
  for k, a in attrs.items():
    (key, v), = a.items()
    if key == "tensor":
      v = read(v)
    elif key == "s":
      v = read_text(v)
    elif key == "ls":
      v = [read_text(x) for x in v]
    elif key == "lf":
      v = [number(x) for x in v]
    elif key in ("f", "i"):
      v = float(v) if key == "f" else int(v)
    elif key == "shape" and v is not None:
      v = [None if x < 0 else x for x in v]
    elif key == "lshape":
      v = [None if x is None else [None if y < 0 else y for y in x] for x in v]
    set_attr(node.attr[k], kinds.get(k, "list(string)"), v)


def node_case(f, c):
  inputs = []
  for x in c["inputs"]:
    inputs.append(ref(read(x["ref"])) if "ref" in x else var(read(x["resource_variable"])) if "resource_variable" in x else read(x))
  node = graph_pb2.GraphDef().node.add(op=c["op"])
  set_attrs(node, c["attrs"])
  try:
    outputs, after = f.run_node(NodeGraph(c["op"], inputs, {}, hide=True, ready=node))
    assert "error" not in c, "no error"
  except RUN_ERRORS as e:
    if "error" not in c:
      raise
    assert error_json(e, c["error"].get("contains")) == c["error"]
    return
  for got, want in zip(outputs, c["outputs"]):
    if want is not None:
      same(got, read(want), c.get("tolerance"))
  for got, want in zip(after, c.get("refs_after", [])):
    if want is not None:
      same(got, read(want), c.get("tolerance"))


def graph_case(f, c):
  g = graph_pb2.GraphDef()
  g.versions.producer = 1882
  if "graph_def" in c:
    g.ParseFromString(read_text(c["graph_def"]))
  for n in c.get("graph", []):
    node = g.node.add(name=n["name"], op=n["op"], input=n["inputs"])
    set_attrs(node, n["attrs"])
  tmp = tempfile.mkdtemp()
  for k, v in c.get("files", {}).items():
    with open(os.path.join(tmp, k), "wb") as file:
      file.write(read_text(v))
  f.place(g, tmp)
  with tf.Graph().as_default() as graph:
    tf.import_graph_def(g, name="")
    with tf.Session(graph=graph, config=config()) as sess:
      for s in c["steps"]:
        again = f.step(graph, sess, {"feeds": {k: read(v) for k, v in s["feeds"].items()}, "fetches": s["fetches"], "targets": s["targets"],
                                     "error": s.get("error") and (s["error"].get("contains") or True)}, tmp)
        if "error" in s:
          assert again["error"] == s["error"], again
        else:
          for got, want in zip(again["outputs"], s["outputs"]):
            same(read(json.loads(dump(got))), read(want), s.get("tolerance"))
  shutil.rmtree(tmp)


bad = count = 0
for path in sys.argv[1:] or sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "*.json"))):
  f = File(__file__, "none")
  data = json.load(open(path))
  if data["script"] == "make_conv_dilated.py" and os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0":
    continue
  for c in data.get("cases", []):
    count += 1
    try:
      (graph_case if "graph" in c or "graph_def" in c else node_case)(f, c)
    except Exception as e:
      bad += 1
      print("%s: %s: %s %s" % (os.path.basename(path), c["name"], type(e).__name__, str(e).strip()[:200]))
print("%d cases, %d differ" % (count, bad))
sys.exit(bad > 0)
