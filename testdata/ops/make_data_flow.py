"""Queues, accumulators, tensor arrays and tables: queues, accumulators, tensor_arrays, lookup."""
from golden import *

raw = tf.raw_ops
MOVED = NUMBERS + ["bool", "string"]
NAN = float("nan")


def dt(name):
  return tf.as_dtype(type_enum(name))


def const(x, name):
  """A Const of any dtype, quantized ones too."""
  return tf.get_default_graph().create_op("Const", [], [dt(x.dtype)], name=name, attrs={
      "value": attr_value_pb2.AttrValue(tensor=x.proto()), "dtype": attr_value_pb2.AttrValue(type=type_enum(x.dtype))}).outputs[0]


def queue_nodes(q, types, many=True):
  """The usual ops on a queue, fed from placeholders x0, x1, …"""
  xs = [tf.placeholder(d, None, name="x%d" % i) for i, d in enumerate(types)]
  n = tf.placeholder(tf.int32, [], name="n")
  raw.QueueEnqueueV2(handle=q, components=xs, name="put")
  raw.QueueDequeueV2(handle=q, component_types=types, name="get")
  if many:
    raw.QueueEnqueueManyV2(handle=q, components=xs, name="put_many")
    raw.QueueDequeueManyV2(handle=q, n=n, component_types=types, name="get_many")
    raw.QueueDequeueUpToV2(handle=q, n=n, component_types=types, name="get_up_to")
  raw.QueueSizeV2(handle=q, name="size")
  raw.QueueCloseV2(handle=q, name="close")
  raw.QueueCloseV2(handle=q, cancel_pending_enqueues=True, name="cancel")


def queues():
  f = File(__file__, "queues.json")
  feed = lambda *xs: {"x%d" % i: x for i, x in enumerate(xs)}
  put = lambda *xs: {"targets": ["put"], "feeds": feed(*xs)}
  put_many = lambda *xs: {"targets": ["put_many"], "feeds": feed(*xs)}
  get = lambda k=1: {"fetches": ["get:%d" % i for i in range(k)]}
  get_many = lambda n, k=1, op="get_many": {"fetches": ["%s:%d" % (op, i) for i in range(k)], "feeds": {"n": i32(n)}}
  size, close = {"fetches": ["size"]}, {"targets": ["close"]}
  fails = lambda step, why=True: dict(step, error=why)

  def fifo(types=(tf.float32,), shapes=((2,),), **kw):
    def build():
      queue_nodes(raw.FIFOQueueV2(component_types=list(types), shapes=[list(x) for x in shapes], name="q", **kw), list(types), bool(shapes))
    return build

  def by_priority():
    q = raw.PriorityQueueV2(component_types=[tf.string], shapes=[[]], capacity=10, name="q")
    queue_nodes(q, [tf.int64, tf.string])
  f.graph("a priority queue gives the smallest first", lambda: by_priority(),
          [put(i64(5), s("e")), put_many(i64([3, 1, 4]), s(["c", "a", "d"])), get(2), put(i64(2), s("b")), get_many(2, 2), size, get(2), close, fails(get_many(5, 2, "get_up_to"))])
  f.graph("a priority queue refuses a list of priorities", lambda: by_priority(), [fails(put(i64([1]), s("x"))), fails(put_many(i64(1), s("x"))), size])
  f.graph("a FIFO queue gives back in order", fifo(), [size, put(f32([1, 2])), put(f32([3, 4])), size, get(), get(), size])
  f.graph("a FIFO queue of pairs", fifo([tf.int64, tf.string], [[], []]),
          [put(i64(1), s("a")), put_many(i64([2, 3, 4]), s(["b", "c", "d"])), get(2), get_many(2, 2), size])
  f.graph("a FIFO queue without shapes takes any", fifo([tf.float32], []), [put(f32(1)), put(f32([[1, 2]])), get(), get()])
  f.graph("a FIFO queue takes many and gives many", fifo([tf.float32], [[2]]),
          [put_many(f32(np.arange(10).reshape([5, 2]))), get_many(3), size, get_many(0), get_many(2)])
  f.graph("a FIFO queue refuses another shape", fifo(), [fails(put(f32([1, 2, 3]))), fails(put_many(f32([[1, 2, 3]]))), size])
  f.graph("a FIFO queue refuses many of unequal numbers", fifo([tf.float32, tf.float32], [[], []]), [fails(put_many(f32([1, 2]), f32([1]))), size])
  f.graph("a closed FIFO queue refuses and runs dry", fifo([tf.float32], [[]]),
          [put(f32(1)), close, fails(put(f32(2)), "closed"), get(), fails(get(), "closed"), size])
  f.graph("a closed FIFO queue gives many only whole", fifo([tf.float32], [[]]),
          [put_many(f32([1, 2, 3])), close, get_many(2), fails(get_many(2)), get()])
  f.graph("a closed FIFO queue gives up to what it has", fifo([tf.float32], [[]]),
          [put_many(f32([1, 2, 3])), close, get_many(2, op="get_up_to"), get_many(2, op="get_up_to"), fails(get_many(2, op="get_up_to"))])
  f.graph("a closed FIFO queue cannot be closed again", fifo([tf.float32], [[]]), [close, fails(close, "closed")])
  f.graph("a closed FIFO queue can still be cancelled", fifo([tf.float32], [[]]), [close, {"targets": ["cancel"]}])
  f.graph("an open FIFO queue gives up to n when it has them", fifo([tf.float32], [[]]), [put_many(f32([1, 2, 3])), get_many(2, op="get_up_to"), size])
  f.graph("a dequeue waits for an enqueue of the same step", fifo([tf.float32], [[]]),
          [{"fetches": ["get:0"], "targets": ["put"], "feeds": {"x0": f32(5)}}, size])
  f.graph("a dequeue of many waits for an enqueue of many of the same step", fifo([tf.float32], [[]]),
          [put(f32(1)), {"fetches": ["get_many:0"], "targets": ["put_many"], "feeds": {"x0": f32([2, 3]), "n": i32(3)}}, size])
  f.graph("an enqueue waits for room made in the same step", fifo([tf.float32], [[]], capacity=1),
          [put(f32(1)), {"fetches": ["get:0"], "targets": ["put"], "feeds": {"x0": f32(2)}}, get(), size])
  f.graph("an enqueue of many larger than the capacity passes in pieces", fifo([tf.float32], [[]], capacity=2),
          [{"fetches": ["get_many:0"], "targets": ["put_many"], "feeds": {"x0": f32([1, 2, 3, 4, 5]), "n": i32(5)}}, size])
  f.graph("a dequeue waiting at a close ends", fifo([tf.float32], [[]]), [{"fetches": ["get:0"], "targets": ["close"], "error": True}])
  f.graph("a dequeue of a negative number is refused", fifo([tf.float32], [[]]), [fails(get_many(-1))])
  f.graph("an enqueue of none changes nothing", fifo([tf.float32], [[]]), [put_many(f32([], [0])), size])

  def no_shapes_many():
    q = raw.FIFOQueueV2(component_types=[tf.float32], name="q")
    raw.QueueEnqueueV2(handle=q, components=[tf.constant(1.)], name="put")
    raw.QueueDequeueManyV2(handle=q, n=1, component_types=[tf.float32], name="get_many")
  f.graph("a dequeue of many needs shapes", no_shapes_many, [{"targets": ["put"]}, {"fetches": ["get_many:0"], "error": True}])

  def shared():
    a = raw.FIFOQueueV2(component_types=[tf.float32], shapes=[[]], shared_name="one", name="a")
    c = raw.FIFOQueueV2(component_types=[tf.float32], shapes=[[]], shared_name="one", name="c")
    raw.QueueEnqueueV2(handle=a, components=[tf.constant(7.)], name="put")
    raw.QueueDequeueV2(handle=c, component_types=[tf.float32], name="get")
    bad = raw.FIFOQueueV2(component_types=[tf.int32], shapes=[[]], shared_name="one", name="bad")
    raw.QueueSizeV2(handle=bad, name="bad_size")
  f.graph("two queues of one name are one", shared, [{"targets": ["put"]}, {"fetches": ["get:0"]}, {"fetches": ["bad_size"], "error": True}])

  def typed():
    q = raw.FIFOQueueV2(component_types=[tf.float32], shapes=[[]], name="q")
    raw.QueueEnqueueV2(handle=q, components=[tf.constant(7)], name="put")
    raw.QueueDequeueV2(handle=q, component_types=[tf.int32], name="get")
  f.graph("a queue refuses another dtype", typed, [{"targets": ["put"], "error": True}, {"fetches": ["get:0"], "error": True}])

  def padding(types=(tf.float32,), shapes=((None,),)):
    return lambda: queue_nodes(raw.PaddingFIFOQueueV2(component_types=list(types), shapes=[list(x) for x in shapes], name="q"), list(types))
  f.graph("a padding queue pads to the longest", padding(),
          [put(f32([1])), put(f32([2, 3, 4])), put(f32([], [0])), size, get_many(3), size])
  f.graph("a padding queue pads matrices and strings", padding([tf.int32, tf.string], [[2, None], [None]]),
          [put(i32([[1], [2]]), s(["a"])), put(i32([[3, 4], [5, 6]]), s([], [0])), get_many(2, 2)])
  f.graph("a padding queue gives one unpadded", padding(), [put(f32([1])), put(f32([2, 3])), get(), get()])
  f.graph("a padding queue refuses another rank", padding(), [fails(put(f32([[1]])))])
  f.graph("a padding queue gives up to what it has when closed", padding(),
          [put(f32([1])), put(f32([2, 3])), close, get_many(5, op="get_up_to"), fails(get_many(1))])
  f.graph("a padding queue takes many", padding([tf.float32], [[None]]), [put_many(f32([[1, 2], [3, 4]])), put(f32([5])), get_many(3)])

  def shuffle(seed, least=0, types=(tf.int32,), shapes=((),), capacity=100):
    return lambda: queue_nodes(raw.RandomShuffleQueueV2(component_types=list(types), shapes=[list(x) for x in shapes], capacity=capacity, min_after_dequeue=least,
                                                        seed=seed, seed2=seed + 1, name="q"), list(types))
  for seed in [1, 42]:
    f.graph("a shuffling queue of seed %d draws in TensorFlow's order" % seed, shuffle(seed), [put_many(i32(range(10))), get_many(4), get(), get_many(5), size])
  f.graph("a shuffling queue keeps its minimum until it is closed", shuffle(7, least=3),
          [put_many(i32(range(5))), get_many(2), size, close, get_many(3), fails(get())])
  f.graph("a shuffling queue of pairs keeps them together", shuffle(3, types=[tf.int32, tf.string], shapes=[[], []]),
          [put_many(i32([1, 2, 3]), s(["a", "b", "c"])), get_many(3, 2)])
  f.graph("a shuffling queue gives up to what it has when closed", shuffle(5, least=1), [put_many(i32([1, 2, 3])), close, get_many(5, op="get_up_to")])
  f.write()


def accumulators():
  f = File(__file__, "accumulators.json")
  for kind in ["Resource", ""]:
    make = raw.ResourceConditionalAccumulator if kind else raw.ConditionalAccumulator
    op = lambda x: getattr(raw, kind + "Accumulator" + x)

    def dense(d="float", shape=(2,), reduction="MEAN"):
      def build():
        a = make(dtype=dt(d), shape=None if shape is None else list(shape), reduction_type=reduction, name="a")
        op("ApplyGradient")(handle=a, local_step=tf.placeholder(tf.int64, [], name="step"), gradient=tf.placeholder(dt(d), None, name="g"), name="put")
        op("TakeGradient")(handle=a, num_required=tf.placeholder(tf.int32, [], name="n"), dtype=dt(d), name="take")
        op("NumAccumulated")(handle=a, name="count")
        op("SetGlobalStep")(handle=a, new_global_step=tf.placeholder(tf.int64, [], name="now"), name="set")
      return build
    put = lambda g, step: {"targets": ["put"], "feeds": {"g": g, "step": i64(step)}}
    take = lambda n: {"fetches": ["take"], "feeds": {"n": i32(n)}}
    count = {"fetches": ["count"]}
    word = "resource" if kind else "reference"
    for d in ["half", "float", "double"]:
      f.graph("a %s accumulator of %s averages" % (word, d), dense(d),
              [count, put(t(d, [1, 2]), 0), put(t(d, [3, 5]), 0), put(t(d, [4, 4]), 0), count, take(2), count])
    f.graph("a %s accumulator sums" % word, dense(reduction="SUM"), [put(f32([1, 2]), 0), put(f32([3, 5]), 0), take(1), count])
    f.graph("a %s accumulator drops stale gradients" % word, dense(),
            [put(f32([1, 2]), 0), take(1), put(f32([9, 9]), 0), count, put(f32([3, 4]), 1), count, take(1)])
    f.graph("a %s accumulator follows the global step it is given" % word, dense(),
            [{"targets": ["set"], "feeds": {"now": i64(5)}}, put(f32([1, 2]), 4), count, put(f32([1, 2]), 5), count, take(1), put(f32([1, 2]), 5), count])
    f.graph("a %s accumulator's take waits for the gradient of the same step" % word, dense(),
            [{"fetches": ["take"], "targets": ["put"], "feeds": {"g": f32([1, 3]), "step": i64(0), "n": i32(1)}}, count])
    f.graph("a %s accumulator refuses another shape" % word, dense(), [dict(put(f32([1, 2, 3]), 0), error=True), count])
    f.graph("a %s accumulator of unknown shape takes the first's" % word, dense(shape=None),
            [put(f32([[1, 2]]), 0), dict(put(f32([1, 2]), 0), error=True), put(f32([[3, 4]]), 0), take(2)])
    f.graph("a %s accumulator takes none of zero" % word, dense(), [dict(take(0), error=True)])

  def sparse(d="float", shape=(None, 2), reduction="MEAN", known=True):
    def build():
      a = raw.SparseConditionalAccumulator(dtype=dt(d), shape=None if shape is None else list(shape), reduction_type=reduction, name="a")
      raw.SparseAccumulatorApplyGradient(handle=a, local_step=tf.placeholder(tf.int64, [], name="step"), gradient_indices=tf.placeholder(tf.int64, None, name="i"),
                                         gradient_values=tf.placeholder(dt(d), None, name="v"), gradient_shape=tf.placeholder(tf.int64, None, name="s"),
                                         has_known_shape=known, name="put")
      raw.SparseAccumulatorTakeGradient(handle=a, num_required=tf.placeholder(tf.int32, [], name="n"), dtype=dt(d), name="take")
      raw.AccumulatorNumAccumulated(handle=a, name="count")
      raw.AccumulatorSetGlobalStep(handle=a, new_global_step=tf.placeholder(tf.int64, [], name="now"), name="set")
    return build
  put = lambda i, v, step=0, shape=(4, 2): {"targets": ["put"], "feeds": {"i": i64(i, [len(i)]), "v": v, "s": i64(list(shape), [len(shape)]), "step": i64(step)}}
  take = lambda n: {"fetches": ["take:0", "take:1", "take:2"], "feeds": {"n": i32(n)}}
  count = {"fetches": ["count"]}
  for d in ["half", "float", "double"]:
    f.graph("a sparse accumulator of %s averages row by row" % d, sparse(d),
            [put([0, 2], t(d, [[1, 2], [3, 4]])), put([1, 2], t(d, [[5, 6], [7, 8]])), count, take(2), count])
  f.graph("a sparse accumulator sums", sparse(reduction="SUM"), [put([0, 2], f32([[1, 2], [3, 4]])), put([1, 2], f32([[5, 6], [7, 8]])), take(1)])
  f.graph("a sparse accumulator drops stale gradients", sparse(),
          [put([0], f32([[1, 2]])), take(1), put([0], f32([[9, 9]]), 0), count, put([1], f32([[3, 4]]), 1), take(1)])
  f.graph("a sparse accumulator of three gradients", sparse(),
          [put([0, 3], f32([[1, 1], [2, 2]])), put([3], f32([[4, 4]])), put([0, 1, 3], f32([[1, 2], [3, 3], [6, 6]])), take(3)])
  f.graph("a sparse accumulator without a known shape", sparse(known=False, shape=None), [put([0, 2], f32([[1, 2], [3, 4]]), shape=()), take(1)])
  f.graph("a sparse accumulator refuses rows of another size", sparse(), [dict(put([0], f32([[1, 2, 3]]), shape=(4, 3)), error=True)])
  f.graph("a sparse accumulator refuses unequal numbers", sparse(), [dict(put([0, 1], f32([[1, 2]])), error=True)])
  f.write()


def tensor_arrays():
  f = File(__file__, "tensor_arrays.json")

  def build(d, elements, size=None, order=None, gather=None, **kw):
    def nodes():
      handle, flow = raw.TensorArrayV3(size=size or len(elements), dtype=dt(d), name="array", **kw)
      for n, i in enumerate(order or range(len(elements))):
        x = const(elements[n], "x%d" % n)
        flow = raw.TensorArrayWriteV3(handle=handle, index=i, value=x, flow_in=flow, name="write%d" % n)
      raw.TensorArrayGatherV3(handle=handle, indices=gather or list(range(len(elements))), flow_in=flow, dtype=dt(d),
                              element_shape=kw.get("element_shape"), name="all")
    return nodes

  for d in MOVED:
    f.graph("a TensorArray of %s" % d, build(d, [rnd("ta0" + d, d, [2]), rnd("ta1" + d, d, [2])], clear_after_read=False), [{"fetches": ["all"]}])
  f.graph("a TensorArray written out of order", build("float", [f32([1]), f32([2]), f32([3])], order=[2, 0, 1]), [{"fetches": ["all"]}, {"fetches": ["all"]}])
  f.graph("a TensorArray gathered in part", build("float", [f32([1]), f32([2]), f32([3])], gather=[2, 0]), [{"fetches": ["all"]}])
  f.graph("a TensorArray that grows", build("float", [f32(1), f32(2), f32(3)], size=1, dynamic_size=True), [{"fetches": ["all"]}])
  f.graph("a TensorArray that may not grow", build("float", [f32(1), f32(2)], size=1), [{"fetches": ["all"], "error": True}])
  f.graph("a TensorArray written twice at one place", build("float", [f32(1), f32(2)], order=[0, 0], size=2), [{"fetches": ["all"], "error": True}])
  f.graph("a TensorArray read where nothing is written", build("float", [f32(1)], size=2, gather=[0, 1]), [{"fetches": ["all"], "error": True}])
  f.graph("a TensorArray gathered beyond its end", build("float", [f32(1)], size=1, gather=[0, 3]), [{"fetches": ["all"], "error": True}])
  f.graph("a TensorArray of shapes that differ", build("float", [f32([1]), f32([1, 2])]), [{"fetches": ["all"], "error": True}])
  f.graph("a TensorArray cleared by reading", lambda: _cleared(), [{"fetches": ["first", "again"], "error": True}])
  f.write()


def _cleared():
  handle, flow = raw.TensorArrayV3(size=1, dtype=tf.float32, clear_after_read=True, name="array")
  flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=tf.constant(1.), flow_in=flow, name="write")
  first = raw.TensorArrayGatherV3(handle=handle, indices=[0], flow_in=flow, dtype=tf.float32, name="first")
  with tf.control_dependencies([first]):
    raw.TensorArrayGatherV3(handle=handle, indices=[0], flow_in=tf.identity(flow), dtype=tf.float32, name="again")


def lookup():
  f = File(__file__, "lookup.json")
  keys = {"int32": i32([3, -1, 7]), "int64": i64([3, -1, 2**40]), "string": s(["a", "", "long key"])}
  values = {"bool": b([True, False, True]), "double": f64([0.5, 1.5, -2]), "float": f32([0.5, 1.5, -2]), "int32": i32([1, 2, 3]),
            "int64": i64([1, 2, 2**40]), "string": s(["x", "y", ""])}
  queries = {"int32": i32([[7, 3], [100, -1]]), "int64": i64([[2**40, 3], [100, -1]]), "string": s([["a", "b"], ["", "long key"]])}
  missing = {"bool": b(False), "double": f64(-1), "float": f32(-1), "int32": i32(-1), "int64": i64(-1), "string": s("none")}
  pairs = [("int32", v) for v in ["double", "float", "int32", "string"]] + [("int64", v) for v in ["double", "float", "int32", "int64", "string"]] + \
      [("string", v) for v in ["bool", "double", "float", "int32", "int64", "string"]]

  def table(k, v, init=raw.InitializeTableV2, more=None, **kw):
    def build():
      h = raw.HashTableV2(key_dtype=dt(k), value_dtype=dt(v), name="table", **kw)
      init(table_handle=h, keys=tf.placeholder(dt(k), None, name="keys"), values=tf.placeholder(dt(v), None, name="values"), name="init")
      raw.LookupTableFindV2(table_handle=h, keys=tf.placeholder(dt(k), None, name="q"), default_value=tf.placeholder(dt(v), None, name="default"), name="find")
      if more:
        more(h)
    return build
  init = lambda a, c: {"targets": ["init"], "feeds": {"keys": a, "values": c}}
  find = lambda q, d: {"fetches": ["find"], "feeds": {"q": q, "default": d}}
  for k, v in pairs:
    f.graph("a table from %s to %s" % (k, v), table(k, v), [init(keys[k], values[v]), find(queries[k], missing[v])])
  f.graph("a table asked before it is filled", table("string", "int64"), [dict(find(s("a"), i64(-1)), error=True)])
  f.graph("a table filled twice with the same", table("string", "int64"),
          [init(s(["a", "b"]), i64([1, 2])), init(s(["a", "b"]), i64([1, 2])), find(s(["a", "c"]), i64(-1))])
  f.graph("a table filled with one key twice", table("string", "int64"), [dict(init(s(["a", "a"]), i64([1, 2])), error=True)])
  f.graph("a table filled with one pair twice", table("string", "int64"), [init(s(["a", "a"]), i64([1, 1])), find(s(["a"]), i64(-1))])
  f.graph("a table filled with unequal numbers", table("string", "int64"), [dict(init(s(["a", "b"]), i64([1])), error=True)])
  f.graph("a table asked with a scalar and with nothing", table("int64", "float"), [init(i64([1]), f32([5])), find(i64(1), f32(0)), find(i64([], [0, 2]), f32(0))])
  f.graph("a table with a default of the wrong shape", table("int64", "float"), [init(i64([1]), f32([5])), dict(find(i64([1]), f32([0, 1])), error=True)])
  f.graph("a table filled by import", table("string", "int64", init=raw.LookupTableImportV2), [init(s(["a", "b"]), i64([1, 2])), find(s(["b", "z"]), i64(9))])

  def other(h):
    h2 = raw.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="named", name="again")
    raw.LookupTableFindV2(table_handle=h2, keys=tf.constant(["a"]), default_value=tf.constant(-1, tf.int64), name="find2")
  f.graph("two tables of one name are one", table("string", "int64", more=other, shared_name="named"), [init(s(["a"]), i64([4])), {"fetches": ["find2"]}])
  f.graph("a table asked for another dtype", table("string", "int64", more=lambda h: raw.LookupTableFindV2(
      table_handle=h, keys=tf.constant(["a"]), default_value=tf.constant(1.0), name="wrong")),
      [init(s(["a"]), i64([4])), {"fetches": ["wrong"], "error": True}])
  f.write()


if __name__ == "__main__":
  queues()
  accumulators()
  tensor_arrays()
  lookup()
