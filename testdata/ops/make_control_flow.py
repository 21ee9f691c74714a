"""Dead and living values, loops, assertions: control_flow. Handles and lists that are only moved about: resource_moves, variant_moves."""
from golden import *

raw = tf.raw_ops
MOVED = NUMBERS + ["bool", "string"]
tf.disable_control_flow_v2()


def dt(name):
  return tf.as_dtype(type_enum(name))


def const(x, name):
  return tf.get_default_graph().create_op("Const", [], [dt(x.dtype)], name=name, attrs={
      "value": attr_value_pb2.AttrValue(tensor=x.proto()), "dtype": attr_value_pb2.AttrValue(type=type_enum(x.dtype))}).outputs[0]


def pred():
  return tf.placeholder(tf.bool, [], name="p")


YES, NO = {"p": b(True)}, {"p": b(False)}


def control_flow():
  f = File(__file__, "control_flow.json")
  for d in MOVED + ["qint8", "quint8", "qint32"]:
    def switch(d=d):
      off, on = raw.Switch(data=const(rnd("sw" + d, d, [2]), "x"), pred=pred(), name="switch")
      raw.Merge(inputs=[off, on], name="merge")
    f.graph("Switch and Merge of %s" % d, switch, [{"fetches": ["merge:0", "merge:1"], "feeds": YES}, {"fetches": ["merge:0", "merge:1"], "feeds": NO}])
    if d not in QUANTIZED:
      def ref_switch(d=d):
        v = raw.VariableV2(shape=[2], dtype=dt(d), name="v")
        raw.Assign(ref=v, value=const(rnd("rsw" + d, d, [2]), "x"), name="set")
        off, on = raw.RefSwitch(data=v, pred=pred(), name="switch")
        raw.Identity(input=off, name="off")
        raw.Identity(input=on, name="on")
      f.graph("RefSwitch of %s" % d, ref_switch, [{"targets": ["set"]}, {"fetches": ["on"], "feeds": YES}, {"fetches": ["off"], "feeds": NO}])
    else:
      def ref_switch_only(d=d):
        v = raw.VariableV2(shape=[2], dtype=dt(d), name="v")
        raw.Assign(ref=v, value=const(rnd("rsw" + d, d, [2]), "x"), name="set")
        raw.RefSwitch(data=v, pred=pred(), name="switch")
      f.graph("RefSwitch of %s" % d, ref_switch_only, [{"targets": ["set"]}, {"fetches": ["switch:1"], "feeds": YES}, {"fetches": ["switch:0"], "feeds": NO}])

  def dead():
    off, on = raw.Switch(data=tf.constant([1., 2.]), pred=pred(), name="switch")
    tf.negative(off, name="neg_off")
    tf.negative(on, name="neg_on")
    with tf.control_dependencies([tf.identity(on, name="on")]):
      tf.constant(3., name="after_on")
  f.graph("a dead value cannot be fetched", dead, [
      {"fetches": ["neg_on"], "feeds": YES}, {"fetches": ["neg_on"], "feeds": NO, "error": True}, {"fetches": ["neg_off"], "feeds": NO},
      {"fetches": ["neg_off"], "feeds": YES, "error": True}, {"targets": ["neg_off"], "feeds": YES},
      {"fetches": ["after_on"], "feeds": YES}, {"fetches": ["after_on"], "feeds": NO, "error": True}])

  def ref_update():
    v = raw.VariableV2(shape=[], dtype=tf.float32, name="v")
    raw.Assign(ref=v, value=tf.constant(1.), name="set")
    off, on = raw.RefSwitch(data=v, pred=pred(), name="switch")
    raw.AssignAdd(ref=on, value=tf.constant(10.), name="add")
    raw.AssignSub(ref=off, value=tf.constant(100.), name="sub")
  f.graph("RefSwitch hands on the variable itself", ref_update, [
      {"targets": ["set"]}, {"targets": ["add", "sub"], "feeds": YES}, {"fetches": ["v"]}, {"targets": ["add", "sub"], "feeds": NO}, {"fetches": ["v"]}])

  def cond():
    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.cond(pred(), lambda: tf.square(x), lambda: tf.exp(x), name="cond")
    y = tf.identity(y, name="y")
    g, = tf.gradients(y, x)
    tf.identity(g, name="g")
  x = {"x": f32([0.5, -1, 2])}
  f.graph("a cond and its gradient", cond, [{"fetches": ["y", "g"], "feeds": dict(x, **YES)}, {"fetches": ["y", "g"], "feeds": dict(x, **NO)}])

  def nested_cond():
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.cond(x > 0., lambda: tf.cond(x > 10., lambda: x * 100., lambda: x * 10.), lambda: tf.cond(x < -10., lambda: x - 100., lambda: x - 10.))
    tf.identity(y, name="y")
    tf.identity(tf.gradients(y, x)[0], name="g")
  f.graph("a cond within a cond", nested_cond, [{"fetches": ["y", "g"], "feeds": {"x": f32(v)}} for v in [20, 5, -5, -20]])

  def cond_side_effect():
    v = tf.Variable(0., name="v", use_resource=True)
    y = tf.cond(pred(), lambda: tf.assign_add(v, 1.), lambda: tf.assign_sub(v, 10.))
    tf.identity(y, name="y")
  f.graph("only the branch taken has its effect", cond_side_effect, [
      {"targets": ["v/Assign"]}, {"fetches": ["y"], "feeds": YES}, {"fetches": ["y"], "feeds": NO}, {"fetches": ["v/Read/ReadVariableOp"]}])

  def cond_variable():
    v = tf.Variable([1., 2.], name="v", use_resource=False)
    w = tf.Variable([3., 4.], name="w", use_resource=False)
    y = tf.cond(pred(), lambda: v * 2., lambda: w * v)
    g = tf.gradients(y, [v, w])
    tf.identity(y, name="y")
    tf.identity(g[0], name="gv")
    tf.identity(g[1], name="gw")
    tf.group(v.initializer, w.initializer, name="init_all")
  f.graph("gradients of a cond to variables", cond_variable, [
      {"targets": ["init_all"]}, {"fetches": ["y", "gv", "gw"], "feeds": YES}, {"fetches": ["y", "gv", "gw"], "feeds": NO}])

  def case_of_many():
    i = tf.placeholder(tf.int32, [], name="i")
    y = tf.case([(tf.equal(i, k), lambda k=k: tf.constant(10. * k)) for k in range(3)], default=lambda: tf.constant(-1.), exclusive=True)
    tf.identity(y, name="y")
  f.graph("a case of several", case_of_many, [{"fetches": ["y"], "feeds": {"i": i32(v)}} for v in [0, 2, 7]])

  def loop(parallel):
    def build():
      n = tf.placeholder(tf.int32, [], name="n")
      i, x = tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x * 2. + tf.cast(i, tf.float32)), [tf.constant(0), tf.constant([1., -1.])],
                           parallel_iterations=parallel)
      tf.identity(i, name="i")
      tf.identity(x, name="x")
    return build
  for parallel in [1, 10, 32]:
    f.graph("a while loop of %d parallel iterations" % parallel, loop(parallel), [{"fetches": ["i", "x"], "feeds": {"n": i32(v)}} for v in [0, 1, 7]] +
            ([{"fetches": ["i"], "feeds": {"n": i32(1000)}}] if parallel != 32 else []))

  def nested_loop():
    n = tf.placeholder(tf.int32, [], name="n")

    def outer(i, total):
      _, t2 = tf.while_loop(lambda j, s: j < i, lambda j, s: (j + 1, s + i * j), [0, total])
      return i + 1, t2
    _, total = tf.while_loop(lambda i, t2: i < n, outer, [0, 0])
    tf.identity(total, name="total")
  f.graph("a while loop within a while loop", nested_loop, [{"fetches": ["total"], "feeds": {"n": i32(v)}} for v in [0, 1, 2, 6]])

  def three_deep():
    n = tf.placeholder(tf.int32, [], name="n")
    def l3(k, s):
      return k + 1, s + 1
    def l2(j, s):
      return j + 1, tf.while_loop(lambda k, s: k < j, l3, [0, s], parallel_iterations=2)[1]
    def l1(i, s):
      return i + 1, tf.while_loop(lambda j, s: j < i, l2, [0, s])[1]
    _, s = tf.while_loop(lambda i, s: i < n, l1, [0, 0])
    tf.identity(s, name="s")
  f.graph("while loops three deep", three_deep, [{"fetches": ["s"], "feeds": {"n": i32(v)}} for v in [0, 3, 6]])

  def loop_cond():
    n = tf.placeholder(tf.int32, [], name="n")
    _, a, c = tf.while_loop(lambda i, a, c: i < n, lambda i, a, c: (i + 1,) + tuple(tf.cond(tf.equal(i % 2, 0), lambda: (a + i, c), lambda: (a, c * 2))),
                            [0, 0, 1])
    tf.identity(a, name="a")
    tf.identity(c, name="c")
  f.graph("a cond within a while loop", loop_cond, [{"fetches": ["a", "c"], "feeds": {"n": i32(v)}} for v in [0, 1, 5, 8]])

  def cond_loop():
    n = tf.constant(4)
    y = tf.cond(pred(), lambda: tf.while_loop(lambda i: i < n, lambda i: i + 3, [0]), lambda: tf.constant(-1))
    tf.identity(y, name="y")
  f.graph("a while loop in the branch of a cond", cond_loop, [{"fetches": ["y"], "feeds": YES}, {"fetches": ["y"], "feeds": NO}])

  def loop_invariant():
    w = tf.placeholder(tf.float32, [2, 2], name="w")
    _, x = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.matmul(x, w)), [0, tf.constant([[1., 0.], [0., 1.]])])
    tf.identity(x, name="x")
  f.graph("a while loop with a value from outside", loop_invariant, [{"fetches": ["x"], "feeds": {"w": f32([[1, 1], [1, 0]])}}])

  def loop_variable():
    v = tf.Variable(0., name="v", use_resource=True)

    def body(i):
      with tf.control_dependencies([raw.AssignAddVariableOp(resource=v.handle, value=tf.cast(i, tf.float32))]):
        return i + 1
    tf.identity(tf.while_loop(lambda i: i < 5, body, [0], parallel_iterations=1), name="y")
  f.graph("a while loop that updates a variable", loop_variable, [{"targets": ["v/Assign"]}, {"fetches": ["y"]}, {"fetches": ["v/Read/ReadVariableOp"]}])

  def loop_error():
    _, x = tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x // (3 - i)), [0, 100])
    tf.identity(x, name="x")
  f.graph("an error within a while loop", loop_error, [{"fetches": ["x"], "error": "ivision by zero"}])

  def shape_change():
    _, x = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.concat([x, x], 0)), [tf.constant(0), tf.constant([1., 2.])],
                         shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])])
    tf.identity(x, name="x")
  f.graph("a while loop whose value grows", shape_change, [{"fetches": ["x"]}])

  def raw_loop():
    i = raw.Enter(data=tf.constant(0), frame_name="loop", parallel_iterations=3, name="enter")
    limit = raw.Enter(data=tf.constant(4), frame_name="loop", is_constant=True, parallel_iterations=3, name="limit")
    merge, _ = raw.Merge(inputs=[i, i], name="merge")
    go = raw.LoopCond(input=raw.Less(x=merge, y=limit), name="go")
    out, again = raw.Switch(data=merge, pred=go, name="switch")
    with tf.control_dependencies([raw.Identity(input=again, name="pivot")]):
      one = tf.constant(1, name="one")
    nxt = raw.NextIteration(data=raw.AddV2(x=again, y=one), name="next")
    merge.op._update_input(1, nxt)
    raw.Exit(data=out, name="exit")
  f.graph("a while loop of bare nodes", raw_loop, [{"fetches": ["exit"]}])

  def merge_of_three():
    a = tf.placeholder(tf.bool, [], name="a")
    one, two = raw.Switch(data=tf.constant(5.), pred=a, name="s1")
    c, d = raw.Switch(data=two, pred=pred(), name="s2")
    raw.Merge(inputs=[one, c, d], name="m")
  f.graph("a Merge of three", merge_of_three, [{"fetches": ["m:0", "m:1"], "feeds": {"a": b(x), "p": b(y)}} for x in [True, False] for y in [True, False]])

  def ordered():
    v = raw.VariableV2(shape=[], dtype=tf.float32, name="v")
    raw.Assign(ref=v, value=tf.constant(1.), name="set")
    with tf.control_dependencies([raw.Identity(input=v, name="before")]):
      add = raw.AssignAdd(ref=v, value=tf.constant(5.), name="add")
    with tf.control_dependencies([add]):
      raw.Mul(x=v, y=tf.constant(2.), name="after")
  f.graph("control edges order reads and writes", ordered, [{"targets": ["set"]}, {"fetches": ["after"]}, {"fetches": ["after"]}])

  f.case("Assert of true lets pass", "Assert", [b(True), s("never seen"), i32([1, 2])])
  f.case("Assert of false stops", "Assert", [b(False), s("the sum was"), i32([1, 2, 3, 4, 5])], error="the sum was")
  f.case("Assert of a vector is refused", "Assert", [b([True, True]), s("x")], error=True)

  def assertion():
    x = tf.placeholder(tf.float32, [], name="x")
    with tf.control_dependencies([tf.Assert(tf.less(x, 3.), ["x too large:", x], name="check")]):
      tf.identity(x, name="y")
  f.graph("an assertion before a value", assertion, [{"fetches": ["y"], "feeds": {"x": f32(1)}}, {"fetches": ["y"], "feeds": {"x": f32(5)}, "error": "x too large:"}])
  f.write()


def resource_moves():
  """Handles of two variables pass through the op; what is read at the end tells which handle came out."""
  f = File(__file__, "resource_moves.json")

  def moved(name, build, steps=None):
    def nodes():
      hs = []
      for n, value in [("a", [1., 2.]), ("b", [10., 20.])]:
        h = raw.VarHandleOp(dtype=tf.float32, shape=[2], shared_name=n, name=n)
        raw.AssignVariableOp(resource=h, value=tf.constant(value), name="set_" + n)
        hs.append(h)
      outs = build(*hs)
      for i, o in enumerate(outs if isinstance(outs, (list, tuple)) else [outs]):
        raw.ReadVariableOp(resource=o, dtype=tf.float32, name="read%d" % i)
      nodes.count = len(outs) if isinstance(outs, (list, tuple)) else 1
    with tf.Graph().as_default():
      try:
        nodes()
      except Exception as e:
        f.failures.append((name, "%s: %s" % (type(e).__name__, str(e)[:200])))
        return
    f.graph(name, nodes, [{"targets": ["set_a", "set_b"]}] + (steps or [{"fetches": ["read%d" % i for i in range(nodes.count)]}]))

  both = lambda a, c: raw.Pack(values=[a, c], name="both")
  pick = lambda x, i: raw.StridedSlice(input=x, begin=[i], end=[i + 1], strides=[1], shrink_axis_mask=1)
  moved("handles through Pack and StridedSlice", lambda a, c: [pick(both(a, c), 1), pick(both(a, c), 0)])
  moved("handles through Unpack", lambda a, c: list(raw.Unpack(value=both(a, c), num=2)))
  moved("handles through Identity", lambda a, c: [raw.Identity(input=a), raw.Identity(input=c)])
  moved("handles through StopGradient", lambda a, c: raw.StopGradient(input=c))
  moved("handles through PlaceholderWithDefault", lambda a, c: raw.PlaceholderWithDefault(input=c, shape=[]))
  moved("handles through GatherV2", lambda a, c: [pick(raw.GatherV2(params=both(a, c), indices=[1, 0], axis=0), 0)])
  moved("handles through Gather", lambda a, c: [pick(raw.Gather(params=both(a, c), indices=[1, 0]), 0)])
  moved("handles through Fill", lambda a, c: [pick(raw.Fill(dims=[3], value=c), 2)])
  moved("handles through Split", lambda a, c: [pick(x, 0) for x in raw.Split(axis=0, value=both(a, c), num_split=2)])
  moved("handles through Transpose", lambda a, c: [pick(raw.Transpose(x=both(a, c), perm=[0]), 1)])
  moved("handles through BroadcastTo", lambda a, c: [pick(raw.BroadcastTo(input=c, shape=[2]), 1)])
  moved("handles through OneHot", lambda a, c: [pick(raw.OneHot(indices=1, depth=2, on_value=a, off_value=c, axis=0), i) for i in [0, 1]])
  moved("handles through DynamicPartition", lambda a, c: [pick(x, 0) for x in raw.DynamicPartition(data=both(a, c), partitions=[1, 0], num_partitions=2)])
  moved("handles through StridedSliceGrad", lambda a, c: [pick(raw.StridedSliceGrad(shape=[2], begin=[0], end=[2], strides=[1], dy=both(a, c)), 1)])
  by_pred = [{"fetches": ["read0"], "feeds": YES}, {"fetches": ["read0"], "feeds": NO}]
  moved("handles through Select", lambda a, c: raw.Select(condition=pred(), x=a, y=c), by_pred)
  moved("handles through SelectV2", lambda a, c: raw.SelectV2(condition=pred(), t=a, e=c), by_pred)

  def switch(a, c):
    off, on = raw.Switch(data=a, pred=pred(), name="switch")
    off2, on2 = raw.Switch(data=c, pred=tf.get_default_graph().get_tensor_by_name("p:0"), name="switch2")
    return raw.Merge(inputs=[off, on2], name="merge")[0]
  moved("handles through Switch and Merge", switch, [{"fetches": ["read0"], "feeds": YES}, {"fetches": ["read0"], "feeds": NO}])

  def array(a, c):
    handle, flow = raw.TensorArrayV3(size=2, dtype=tf.resource, name="array")
    raw.TensorArrayWriteV3(handle=handle, index=0, value=a, flow_in=flow, name="write")
    return a
  moved("handles into a TensorArray", array, [{"targets": ["write"]}])

  def fill_rows(a, c):
    out = raw.SparseFillEmptyRows(indices=tf.constant([[1, 0]], tf.int64), values=raw.Pack(values=[a]),
                                  dense_shape=tf.constant([2, 1], tf.int64), default_value=c)
    return [pick(out.output_values, 0), pick(out.output_values, 1)]
  moved("handles through SparseFillEmptyRows", fill_rows)

  def ref_switch(a, c):
    v = raw.VariableV2(shape=[], dtype=tf.resource, name="v")
    raw.Assign(ref=v, value=a, name="keep")
    off, on = raw.RefSwitch(data=v, pred=pred(), name="switch")
    return raw.Identity(input=on)
  moved("handles through a reference variable and RefSwitch", ref_switch, [{"targets": ["keep"]}, {"fetches": ["read0"], "feeds": YES}])

  def keep(a, c):
    v = raw.VarHandleOp(dtype=tf.resource, shape=[2], shared_name="v", name="v")
    raw.AssignVariableOp(resource=v, value=both(a, c), name="keep")
    return [pick(raw.ReadVariableOp(resource=v, dtype=tf.resource), 1)]
  moved("handles through a resource variable", keep, [{"targets": ["keep"]}, {"fetches": ["read0"]}])

  def keep_gather(a, c):
    v = raw.VarHandleOp(dtype=tf.resource, shape=[2], shared_name="v", name="v")
    raw.AssignVariableOp(resource=v, value=both(a, c), name="keep")
    return [pick(raw.ResourceGather(resource=v, indices=[1], dtype=tf.resource), 0)]
  moved("handles gathered from a resource variable", keep_gather, [{"targets": ["keep"]}, {"fetches": ["read0"]}])

  f.write()


def variant_moves():
  """Lists of tensors, the commonest variants, pass through the op; what is taken from them at the end tells which came out."""
  f = File(__file__, "variant_moves.json")

  def moved(name, build, steps=None):
    def nodes():
      lists = []
      for n, value in [("a", [1., 2.]), ("b", [10., 20.])]:
        empty = raw.EmptyTensorList(element_shape=tf.constant([2]), max_num_elements=-1, element_dtype=tf.float32, name="empty_" + n)
        lists.append(raw.TensorListPushBack(input_handle=empty, tensor=tf.constant(value), name=n))
      for i, o in enumerate(build(*lists)):
        raw.TensorListPopBack(input_handle=o, element_shape=tf.constant([2]), element_dtype=tf.float32, name="read%d" % i)
        nodes.count = i + 1
    with tf.Graph().as_default():
      try:
        nodes()
      except Exception as e:
        f.failures.append((name, "%s: %s" % (type(e).__name__, str(e)[:200])))
        return
    f.graph(name, nodes, steps or [{"fetches": ["read%d:1" % i for i in range(nodes.count)]}])

  both = lambda a, c: raw.Pack(values=[a, c], name="both")
  pick = lambda x, i: raw.StridedSlice(input=x, begin=[i], end=[i + 1], strides=[1], shrink_axis_mask=1)
  # After some ops TensorFlow's shape inference takes the variant for something else than a list.
  veiled = lambda x: raw.PlaceholderWithDefault(input=x, shape=[])
  by_pred = [{"fetches": ["read0:1"], "feeds": YES}, {"fetches": ["read0:1"], "feeds": NO}]
  moved("lists through Pack and StridedSlice", lambda a, c: [veiled(pick(both(a, c), 1)), veiled(pick(both(a, c), 0))])
  moved("lists through Unpack", lambda a, c: list(raw.Unpack(value=both(a, c), num=2)))
  moved("lists through Identity", lambda a, c: [raw.Identity(input=a), raw.Identity(input=c)])
  moved("lists through StopGradient", lambda a, c: [raw.StopGradient(input=c)])
  moved("lists through PlaceholderWithDefault", lambda a, c: [raw.PlaceholderWithDefault(input=c, shape=[])])
  moved("lists through GatherV2", lambda a, c: [pick(raw.GatherV2(params=both(a, c), indices=[1, 0], axis=0), 0)])
  moved("lists through Gather", lambda a, c: [pick(raw.Gather(params=both(a, c), indices=[1, 0]), 0)])
  moved("lists through Fill", lambda a, c: [pick(raw.Fill(dims=[3], value=c), 2)])
  moved("lists through Split", lambda a, c: [pick(x, 0) for x in raw.Split(axis=0, value=both(a, c), num_split=2)])
  moved("lists through Transpose", lambda a, c: [pick(raw.Transpose(x=both(a, c), perm=[0]), 1)])
  moved("lists through BroadcastTo", lambda a, c: [pick(raw.BroadcastTo(input=c, shape=[2]), 1)])
  moved("lists through OneHot", lambda a, c: [pick(raw.OneHot(indices=1, depth=2, on_value=a, off_value=c, axis=0), i) for i in [0, 1]])
  moved("lists through DynamicPartition", lambda a, c: [pick(x, 0) for x in raw.DynamicPartition(data=both(a, c), partitions=[1, 0], num_partitions=2)])
  for stitch in ["DynamicStitch", "ParallelDynamicStitch"]:
    moved("lists through %s" % stitch, lambda a, c: [pick(getattr(raw, stitch)(indices=[[1], [0]], data=[raw.Pack(values=[a]), raw.Pack(values=[c])]), 0)])
  moved("lists through StridedSliceGrad", lambda a, c: [pick(raw.StridedSliceGrad(shape=[2], begin=[0], end=[2], strides=[1], dy=both(a, c)), 1)])
  moved("lists through Select", lambda a, c: [veiled(raw.Select(condition=pred(), x=a, y=c))], by_pred)
  moved("lists through SelectV2", lambda a, c: [veiled(raw.SelectV2(condition=pred(), t=a, e=c))], by_pred)
  moved("lists added by AddN", lambda a, c: [raw.AddN(inputs=[a, c])])
  moved("a list of zeros by ZerosLike", lambda a, c: [raw.ZerosLike(x=c)])

  def shapes(a, c):
    raw.Shape(input=both(a, c), name="shape")
    raw.Size(input=both(a, c), name="size")
    return [a]
  moved("the shape and size of lists", shapes, [{"fetches": ["shape", "size"]}])

  def switch(a, c):
    p = pred()
    off, on = raw.Switch(data=a, pred=p, name="switch")
    off2, on2 = raw.Switch(data=c, pred=p, name="switch2")
    return [raw.Merge(inputs=[off, on2], name="merge")[0]]
  moved("lists through Switch and Merge", switch, by_pred)

  def array(a, c):
    handle, flow = raw.TensorArrayV3(size=2, dtype=tf.variant, name="array")
    for i, x in enumerate([c, a]):
      flow = raw.TensorArrayWriteV3(handle=handle, index=i, value=x, flow_in=flow, name="write%d" % i)
    return [pick(raw.TensorArrayGatherV3(handle=handle, indices=[0, 1], flow_in=flow, dtype=tf.variant, name="all"), 0)]
  moved("lists through a TensorArray", array)

  def fill_rows(a, c):
    out = raw.SparseFillEmptyRows(indices=tf.constant([[1, 0]], tf.int64), values=raw.Pack(values=[a]), dense_shape=tf.constant([2, 1], tf.int64), default_value=c)
    return [pick(out.output_values, 0), pick(out.output_values, 1)]
  moved("lists through SparseFillEmptyRows", fill_rows)

  kept = [{"targets": ["keep"]}, {"fetches": ["read0:1"]}]

  def ref_switch(a, c):
    v = raw.VariableV2(shape=[], dtype=tf.variant, name="v")
    raw.Assign(ref=v, value=a, name="keep")
    off, on = raw.RefSwitch(data=v, pred=pred(), name="switch")
    return [raw.Identity(input=on)]
  moved("lists through a reference variable and RefSwitch", ref_switch, [kept[0], dict(kept[1], feeds=YES)])

  def resource(a, c):
    v = raw.VarHandleOp(dtype=tf.variant, shape=[2], shared_name="v", name="v")
    raw.AssignVariableOp(resource=v, value=both(a, c), name="keep")
    return [pick(raw.ReadVariableOp(resource=v, dtype=tf.variant), 1)]
  moved("lists through a resource variable", resource, kept)

  def gathered(a, c):
    v = raw.VarHandleOp(dtype=tf.variant, shape=[2], shared_name="v", name="v")
    raw.AssignVariableOp(resource=v, value=both(a, c), name="keep")
    return [pick(raw.ResourceGather(resource=v, indices=[1], dtype=tf.variant), 0)]
  moved("lists gathered from a resource variable", gathered, kept)

  def scattered(a, c):
    v = raw.VarHandleOp(dtype=tf.variant, shape=[2], shared_name="v", name="v")
    raw.AssignVariableOp(resource=v, value=both(a, c), name="keep")
    raw.ResourceScatterUpdate(resource=v, indices=[0], updates=raw.Pack(values=[c]), name="update")
    return [pick(raw.ReadVariableOp(resource=v, dtype=tf.variant), 0)]
  moved("lists through ResourceScatterUpdate", scattered, kept + [{"targets": ["update"]}, kept[1]])
  f.write()


if __name__ == "__main__":
  control_flow()
  resource_moves()
  variant_moves()
