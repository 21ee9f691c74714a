"""Variables: state. Reference variables, resource variables, and what happens before they have a value."""
from golden import *

raw = tf.raw_ops
MOVED = NUMBERS + ["bool", "string"]


def dt(name):
  return tf.as_dtype(type_enum(name))


def state():
  f = File(__file__, "state.json")
  for d in MOVED + ["qint8", "quint8", "qint32", "quint16"]:
    name = "Assign of %s" % d
    f.case(name, "Assign", [ref(rnd(name, d, [2, 2])), rnd(name + "v", d, [2, 2])])
  f.case("Assign of a scalar", "Assign", [ref(f32(1)), f32(2)])
  f.case("Assign of nothing", "Assign", [ref(f32([], [0, 2])), f32([], [0, 2])])
  f.case("Assign of another shape is refused", "Assign", [ref(f32([1, 2])), f32([1, 2, 3])], error=True)
  f.case("Assign of another shape when not validated", "Assign", [ref(f32([1, 2])), f32([[1, 2, 3]])], {"validate_shape": False})
  f.case("Assign without a lock", "Assign", [ref(f32([1, 2])), f32([3, 4])], {"use_locking": False})
  for op in ["AssignAdd", "AssignSub"]:
    for d in NUMBERS:
      name = "%s of %s" % (op, d)
      f.case(name, op, [ref(rnd(name, d, [2, 2], 4, 9)), rnd(name + "v", d, [2, 2], 0, 3)])
    f.case("%s of a scalar under a lock" % op, op, [ref(i64(7)), i64(2)], {"use_locking": True})
    f.case("%s of int8 wraps" % op, op, [ref(t("int8", [127, -128])), t("int8", [1 if op == "AssignAdd" else -1, -1 if op == "AssignAdd" else 1])])
    f.case("%s of another shape is refused" % op, op, [ref(f32([1, 2])), f32([1, 2, 3])], error=True)
    f.case("%s does not broadcast" % op, op, [ref(f32([1, 2])), f32(1)], error=True)
  for d in MOVED:
    if d in ["bfloat16", "bool", "complex128", "complex64", "double", "float", "half", "int64", "uint32", "int32", "string"]:
      f.case("IsVariableInitialized of %s" % d, "IsVariableInitialized", [ref(rnd("init" + d, d, [2]))])
  for d in ["int32", "int64"]:
    f.case("CountUpTo of %s" % d, "CountUpTo", [ref(t(d, 3))], {"limit": 5})
    f.case("CountUpTo of %s at its limit" % d, "CountUpTo", [ref(t(d, 5))], {"limit": 5}, error="5")
    f.case("CountUpTo of %s beyond its limit" % d, "CountUpTo", [ref(t(d, 9))], {"limit": 5}, error=True)
  for op in ["ScatterAdd", "ScatterSub", "ScatterUpdate"]:
    for d in MOVED if op == "ScatterUpdate" else NUMBERS:
      name = "%s of %s" % (op, d)
      idx = [2, 0, 2] if op != "ScatterUpdate" else [2, 0, 1]
      f.case(name, op, [ref(rnd(name, d, [4, 2], 6, 9)), i32(idx), rnd(name + "u", d, [3, 2], 0, 3)])
    f.case("%s by int64" % op, op, [ref(f32([1, 2, 3])), i64([2, 0]), f32([10, 20])])
    f.case("%s by a scalar index" % op, op, [ref(f32([[1, 2], [3, 4]])), i32(1), f32([10, 20])])
    f.case("%s by a matrix of indices" % op, op, [ref(f32([1, 2, 3, 4])), i32([[0, 1], [3, 2]]), f32([[10, 20], [30, 40]])])
    f.case("%s of one value for all" % op, op, [ref(f32([[1, 2], [3, 4], [5, 6]])), i32([0, 2]), f32(9)])
    f.case("%s of nothing" % op, op, [ref(f32([1, 2])), i32([], [0]), f32([], [0])])
    f.case("%s under a lock" % op, op, [ref(f32([1, 2])), i32([1]), f32([5])], {"use_locking": True})
    f.case("%s of an index too large" % op, op, [ref(f32([1, 2])), i32([0, 2]), f32([5, 6])], error="2")
    f.case("%s of a negative index" % op, op, [ref(f32([1, 2])), i32([-1]), f32([5])], error="-1")
    f.case("%s of updates that do not fit" % op, op, [ref(f32([[1, 2]])), i32([0]), f32([[5, 6, 7]])], error=True)
  f.case("ScatterUpdate lets the last of equals win", "ScatterUpdate", [ref(f32([1, 2])), i32([1, 1]), f32([5, 6])])

  for d in MOVED + ["qint8", "quint8", "qint32", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "uint4", "int2", "uint2"]:
    name = "AssignVariableOp of %s" % d
    f.case(name, "AssignVariableOp", [var(rnd(name, d, [2, 2])), rnd(name + "v", d, [2, 2])])
    name = "ReadVariableOp of %s" % d
    f.case(name, "ReadVariableOp", [var(rnd(name, d, [2, 2]))], {"dtype": d})
  f.case("AssignVariableOp of a scalar", "AssignVariableOp", [var(f32(1)), f32(2)])
  for op in ["AssignAddVariableOp", "AssignSubVariableOp"]:
    for d in NUMBERS:
      name = "%s of %s" % (op, d)
      f.case(name, op, [var(rnd(name, d, [2, 2], 4, 9)), rnd(name + "v", d, [2, 2], 0, 3)])
    f.case("%s of a scalar" % op, op, [var(i64(7)), i64(2)])
    f.case("%s of another shape is refused" % op, op, [var(f32([1, 2])), f32([1, 2, 3])], error=True)
    f.case("%s of another dtype is refused" % op, op, [var(f32([1, 2])), f64([1, 2])], error=True)
  f.case("ReadVariableOp as another dtype is refused", "ReadVariableOp", [var(f32([1, 2]))], {"dtype": "double"}, error=True)
  f.case("VarIsInitializedOp of a variable with a value", "VarIsInitializedOp", [var(f32([1, 2]))])
  f.case("DisableCopyOnRead of a variable", "DisableCopyOnRead", [var(f32([1, 2]))])
  for d in ["int32", "int64"]:
    f.case("VariableShape as %s" % d, "VariableShape", [var(f32(np.zeros([2, 0, 3])))], {"out_type": d})
  f.case("VariableShape of a scalar", "VariableShape", [var(f32(1))])
  for d in MOVED:
    name = "ResourceGather of %s" % d
    f.case(name, "ResourceGather", [var(rnd(name, d, [3, 2])), i32([2, 0, 2])], {"dtype": d})
  f.case("ResourceGather by int64", "ResourceGather", [var(rnd("rg", "double", [3, 2])), i64([[2, 0], [1, 1]])], {"dtype": "double"})
  f.case("ResourceGather by a scalar", "ResourceGather", [var(rnd("rg", "float", [3, 2])), i32(1)], {"dtype": "float"})
  f.case("ResourceGather by nothing", "ResourceGather", [var(rnd("rg", "float", [3, 2])), i32([], [0])], {"dtype": "float"})
  f.case("ResourceGather with a batch dim", "ResourceGather", [var(rnd("rg", "float", [2, 3])), i32([[2, 0], [1, 1]])], {"dtype": "float", "batch_dims": 1}, grad=False)
  f.case("ResourceGather of an index too large", "ResourceGather", [var(rnd("rg", "float", [3, 2])), i32([3])], {"dtype": "float"}, error="3")
  f.case("ResourceGather of a negative index", "ResourceGather", [var(rnd("rg", "float", [3, 2])), i32([-1])], {"dtype": "float"}, error="-1")
  for op in ["ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterUpdate"]:
    for d in MOVED if op == "ResourceScatterUpdate" else NUMBERS:
      name = "%s of %s" % (op, d)
      idx = [2, 0, 2] if op != "ResourceScatterUpdate" else [2, 0, 1]
      f.case(name, op, [var(rnd(name, d, [4, 2], 6, 9)), i32(idx), rnd(name + "u", d, [3, 2], 0, 3)])
    f.case("%s by int64" % op, op, [var(f32([1, 2, 3])), i64([2, 0]), f32([10, 20])])
    f.case("%s by a matrix of indices" % op, op, [var(f32([1, 2, 3, 4])), i32([[0, 1], [3, 2]]), f32([[10, 20], [30, 40]])])
    f.case("%s of one value for all" % op, op, [var(f32([[1, 2], [3, 4], [5, 6]])), i32([0, 2]), f32(9)])
    f.case("%s of nothing" % op, op, [var(f32([1, 2])), i32([], [0]), f32([], [0])])
    f.case("%s of an index too large" % op, op, [var(f32([1, 2])), i32([0, 2]), f32([5, 6])], error="2")
    f.case("%s of a negative index" % op, op, [var(f32([1, 2])), i32([-1]), f32([5])], error="-1")
  graphs(f)
  f.write()


def graphs(f):
  def ref_variable(d="float", shape=(2,)):
    def build():
      v = raw.VariableV2(shape=list(shape), dtype=dt(d), name="v")
      raw.IsVariableInitialized(ref=v, name="ready")
      raw.Assign(ref=v, value=tf.placeholder(dt(d), None, name="x"), name="set")
      raw.Identity(input=v, name="read")
    return build

  for d in MOVED:
    name = "a %s reference variable from empty to set" % d
    f.graph(name, ref_variable(d), [
        {"fetches": ["ready"]},
        {"fetches": ["read"], "error": True},
        {"targets": ["set"], "feeds": {"x": rnd(name, d, [2])}},
        {"fetches": ["ready", "read", "v"]},
    ])
  f.graph("a reference variable refuses another shape", ref_variable(), [
      {"targets": ["set"], "feeds": {"x": f32([1, 2, 3])}, "error": True},
      {"fetches": ["ready"]},
  ])

  def resource_variable(d="float", shape=(2,)):
    def build():
      v = raw.VarHandleOp(dtype=dt(d), shape=list(shape), shared_name="v", name="v")
      raw.VarIsInitializedOp(resource=v, name="ready")
      raw.AssignVariableOp(resource=v, value=tf.placeholder(dt(d), None, name="x"), name="set")
      raw.ReadVariableOp(resource=v, dtype=dt(d), name="read")
      raw.DestroyResourceOp(resource=v, name="destroy")
    return build

  for d in MOVED:
    name = "a %s resource variable from empty to set" % d
    f.graph(name, resource_variable(d), [
        {"fetches": ["ready"]},
        {"fetches": ["read"], "error": True},
        {"targets": ["set"], "feeds": {"x": rnd(name, d, [2])}},
        {"fetches": ["ready", "read"]},
    ])
  for d in ["qint8", "quint8", "qint32"]:  # TensorFlow can gather from these but not read them afterwards
    def gather(d=d):
      v = raw.VarHandleOp(dtype=dt(d), shape=[3, 2], shared_name="v", name="v")
      x = tf.get_default_graph().create_op("Const", [], [dt(d)], name="x", attrs={
          "value": attr_value_pb2.AttrValue(tensor=rnd("gathered" + d, d, [3, 2]).proto()), "dtype": attr_value_pb2.AttrValue(type=type_enum(d))}).outputs[0]
      raw.AssignVariableOp(resource=v, value=x, name="set")
      raw.ResourceGather(resource=v, indices=[2, 0, 2], dtype=dt(d), name="y")
    f.graph("ResourceGather of %s" % d, gather, [{"targets": ["set"]}, {"fetches": ["y"]}])

  def two_handles():
    a = raw.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="both", name="a")
    c = raw.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="both", name="c")
    other = raw.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="", name="d")
    raw.AssignVariableOp(resource=a, value=tf.constant([1., 2.]), name="set")
    raw.ReadVariableOp(resource=c, dtype=tf.float32, name="read")
    raw.VarIsInitializedOp(resource=other, name="other_ready")
    raw.AssignAddVariableOp(resource=other, value=tf.constant([1., 2.]), name="add")
    raw.ResourceGather(resource=other, indices=[0], dtype=tf.float32, name="gather")
  f.graph("two handles of one name are one variable", two_handles, [
      {"targets": ["set"]}, {"fetches": ["read", "other_ready"]},
      {"targets": ["add"], "error": True}, {"fetches": ["gather"], "error": True}])

  def shared_refs():
    a = raw.VariableV2(shape=[], dtype=tf.int64, shared_name="both", name="a")
    c = raw.VariableV2(shape=[], dtype=tf.int64, shared_name="both", name="c")
    one = tf.constant(1, tf.int64, name="one")
    raw.Assign(ref=a, value=one, name="set")
    raw.AssignAdd(ref=c, value=one, name="add")
    raw.CountUpTo(ref=a, limit=4, name="count")
    raw.Identity(input=c, name="read")
  f.graph("two reference variables of one name are one", shared_refs, [
      {"targets": ["set"]}, {"targets": ["add"]}, {"fetches": ["count"]}, {"fetches": ["read"]}, {"fetches": ["count"]},
      {"fetches": ["count"], "error": True}, {"fetches": ["read"]}])

  def initializer_order():
    v = tf.Variable([1., 2.], name="v", use_resource=False)
    w = tf.Variable(v.initialized_value() * 3., name="w", use_resource=False)
    tf.group(v.initializer, w.initializer, name="init")
    tf.identity(w + v, name="sum")
  f.graph("a variable made from another's initial value", initializer_order, [{"targets": ["init"]}, {"fetches": ["sum", "v", "w"]}])

  def uninitialised_update():
    v = raw.VariableV2(shape=[2], dtype=tf.float32, name="v")
    raw.AssignAdd(ref=v, value=tf.constant([1., 1.]), name="add")
    raw.ScatterAdd(ref=v, indices=[0], updates=[1.], name="scatter")
    raw.ApplyGradientDescent(var=v, alpha=0.1, delta=[1., 1.], name="apply")
    raw.CountUpTo(ref=raw.VariableV2(shape=[], dtype=tf.int32, name="c"), limit=3, name="count")
  f.graph("updates of a reference variable without a value", uninitialised_update, [
      {"targets": ["add"], "error": True}, {"targets": ["scatter"], "error": True}, {"targets": ["apply"], "error": True}, {"targets": ["count"], "error": True}])

  def feeding():
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    d = tf.placeholder_with_default(tf.constant([[1., 2.]]), [None, 2], name="d")
    y = tf.add(x, d, name="y")
    tf.multiply(y, 2., name="z")
  f.graph("placeholders and feeding what lies between", feeding, [
      {"fetches": ["z"], "feeds": {"x": f32([[1, 1], [2, 2]])}},
      {"fetches": ["z"], "feeds": {"x": f32([[1, 1]]), "d": f32([[5, 5]])}},
      {"fetches": ["z"], "feeds": {"y": f32([[7, 8]])}},
      {"fetches": ["y", "z"], "feeds": {"y": f32([[7, 8]])}},
      {"fetches": ["d"]},
      {"fetches": ["z"], "error": "x"},
  ])

  for d in MOVED:
    f.graph("a %s placeholder fed" % d, lambda d=d: raw.Identity(input=tf.placeholder(dt(d), None, name="x"), name="y"),
            [{"fetches": ["y"], "feeds": {"x": rnd("fed" + d, d, [2])}}])

  def noop():
    v = tf.Variable(0, name="v", use_resource=False)
    add = tf.assign_add(v, 1, name="add")
    with tf.control_dependencies([add.op]):
      tf.no_op(name="nothing")
  f.graph("a NoOp waits for its control inputs", noop, [{"targets": ["v/Assign"]}, {"targets": ["nothing"]}, {"fetches": ["v"]}])


if __name__ == "__main__":
  state()
