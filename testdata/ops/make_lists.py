"""Tensor lists: lists."""
from golden import *

raw = tf.raw_ops


def dt(name):
  return tf.as_dtype(type_enum(name))


def main():
  f = File(__file__, "lists.json")

  def const(x, name=None):
    return tf.constant(x.array if x.dtype != "string" else x.array.tolist(), dt(x.dtype), name=name)

  def hidden(value):
    return tf.placeholder_with_default(value, None)

  def pushed(d, elements, shape=-1, limit=-1):
    handle = raw.EmptyTensorList(element_shape=shape, max_num_elements=limit, element_dtype=dt(d))
    for x in elements:
      handle = raw.TensorListPushBack(input_handle=handle, tensor=const(x))
    return handle

  def stack(handle, d, shape=-1, name="y", **kw):
    return raw.TensorListStack(input_handle=handle, element_shape=hidden(shape), element_dtype=dt(d), name=name, **kw)

  y = [{"fetches": ["y"]}]
  fails = [{"fetches": ["y"], "error": True}]
  for d in NUMBERS + ["bool", "string"]:
    a, c = rnd("a" + d, d, [2]), rnd("c" + d, d, [2])

    def build():
      handle = pushed(d, [a, c])
      rest, top = raw.TensorListPopBack(input_handle=handle, element_shape=[2], element_dtype=dt(d))
      tf.identity(top, name="top")
      raw.TensorListLength(input_handle=rest, name="rest")
      stack(handle, d)
      raw.TensorListGetItem(input_handle=handle, index=0, element_shape=[2], element_dtype=dt(d), name="first")
    f.graph("a list of %s" % d, build, [{"fetches": ["top", "rest", "y", "first"]}] * 2)
  x, z = f32([1, 2]), f32([3, 4])
  f.graph("an empty list popped", lambda: raw.TensorListPopBack(input_handle=pushed("float", []), element_shape=[2], element_dtype=tf.float32, name="y"), [{"fetches": ["y:1"], "error": True}])
  f.graph("a full list", lambda: raw.TensorListLength(input_handle=pushed("float", [x, z], limit=1), name="y"), fails)
  f.graph("a list of another shape", lambda: raw.TensorListLength(input_handle=pushed("float", [x], shape=[3]), name="y"), fails)
  f.graph("a list of shapes that differ stacked", lambda: stack(pushed("float", [x, f32([1])]), "float"), fails)
  f.graph("an empty list stacked", lambda: stack(pushed("float", [], shape=[2, 3]), "float"), y)
  f.graph("an empty list of unknown shape stacked", lambda: stack(pushed("float", [], shape=[-1, 3]), "float"), fails)
  f.graph("a list stacked of another length", lambda: stack(pushed("float", [x]), "float", num_elements=2), fails)

  def reserved(n=3, shape=(2,), d=tf.float32):
    return raw.TensorListReserve(element_shape=hidden(list(shape)), num_elements=hidden(n), element_dtype=d)

  def set_item(handle, i, v, **kw):
    return raw.TensorListSetItem(input_handle=handle, index=hidden(i), item=v, **kw)
  f.graph("places never set are zeros", lambda: stack(set_item(reserved(), 1, tf.constant([5., 6.])), "float"), y)
  f.graph("a place never set", lambda: raw.TensorListGetItem(input_handle=reserved(), index=0, element_shape=[2], element_dtype=tf.float32, name="y"), y)
  f.graph("a place never set of unknown shape", lambda: raw.TensorListGetItem(input_handle=reserved(shape=(-1,)), index=0, element_shape=hidden(-1), element_dtype=tf.float32, name="y"), fails)
  f.graph("a place beyond the end is set", lambda: stack(set_item(reserved(), 3, tf.constant([5., 6.])), "float"), fails)
  f.graph("a place beyond the end is made", lambda: stack(set_item(reserved(1), 2, tf.constant([5., 6.]), resize_if_index_out_of_bounds=True), "float"), y)
  f.graph("a place beyond the end is read", lambda: raw.TensorListGetItem(input_handle=reserved(), index=hidden(7), element_shape=[2], element_dtype=tf.float32, name="y"), fails)
  f.graph("a negative number of places", lambda: stack(reserved(-1), "float"), fails)
  f.graph("the old list is as it was", lambda: [stack(set_item(l, 0, tf.constant([9., 9.])), "float", name="y") is None or stack(l, "float", name="old") for l in [pushed("float", [x, z])]],
          [{"fetches": ["y", "old"]}])
  rows = f32([[1, 2], [3, 4], [5, 6]])
  from_rows = lambda shape=-1: raw.TensorListFromTensor(tensor=const(rows), element_shape=hidden(shape))
  f.graph("a list of rows", lambda: stack(from_rows(), "float"), y)
  f.graph("a list of rows of another shape", lambda: stack(from_rows([3]), "float"), fails)
  f.graph("a list of a scalar's rows", lambda: stack(raw.TensorListFromTensor(tensor=hidden(1.), element_shape=hidden(-1)), "float"), fails)
  for shape in [-1, [-1], [2]]:
    f.graph("the shape of a list of %s" % shape, lambda: raw.TensorListElementShape(input_handle=from_rows(shape), shape_type=tf.int32, name="y"), y)
  f.graph("a list resized", lambda: [raw.TensorListLength(input_handle=raw.TensorListResize(input_handle=from_rows(), size=n), name="y%d" % n) for n in [0, 2, 5]],
          [{"fetches": ["y0", "y2", "y5"]}])
  gather = lambda i: raw.TensorListGather(input_handle=from_rows(), indices=hidden(i), element_shape=hidden([2]), element_dtype=tf.float32, name="y")
  f.graph("a list gathered", lambda: gather([2, 0, 2]), y)
  f.graph("a list gathered beyond its end", lambda: gather([3]), fails)
  scatter = lambda i, n: stack(raw.TensorListScatterV2(tensor=const(rows), indices=hidden(i), element_shape=hidden([2]), num_elements=n), "float")
  f.graph("a list scattered", lambda: scatter([2, 0, 4], -1), y)
  f.graph("a list scattered into a given size", lambda: scatter([2, 0, 4], 6), y)
  f.graph("a list split and joined", lambda: raw.TensorListConcatV2(
      input_handle=raw.TensorListSplit(tensor=const(rows), element_shape=hidden([-1, 2]), lengths=tf.constant([1, 0, 2], tf.int64)), element_shape=hidden([-1, 2]),
      leading_dims=tf.constant([], tf.int64), element_dtype=tf.float32, name="y"), [{"fetches": ["y:0", "y:1"]}])
  f.graph("a list split into too little", lambda: raw.TensorListLength(
      input_handle=raw.TensorListSplit(tensor=const(rows), element_shape=hidden([-1, 2]), lengths=hidden(np.array([1, 1], np.int64))), name="y"), fails)
  f.graph("lists added", lambda: stack(raw.AddN(inputs=[from_rows(), from_rows(), set_item(reserved(), 1, tf.constant([5., 6.]))]), "float"), y)
  f.graph("a list of zeros", lambda: stack(raw.ZerosLike(x=from_rows()), "float"), y)

  def loop():
    def body(i, l):
      return i + 1, raw.TensorListPushBack(input_handle=l, tensor=tf.cast(i, tf.float32))
    start = raw.EmptyTensorList(element_shape=tf.constant([], tf.int32), max_num_elements=-1, element_dtype=tf.float32)
    _, l = tf.while_loop(lambda i, l: i < 4, body, [0, start])
    stack(l, "float")
  f.graph("a list that grows in a loop", loop, y)

  def queue():
    q = raw.FIFOQueueV2(component_types=[tf.variant], name="q")
    raw.QueueEnqueueV2(handle=q, components=[from_rows()], name="put")
    stack(raw.QueueDequeueV2(handle=q, component_types=[tf.variant])[0], "float")
  f.graph("a list in a queue", queue, [{"targets": ["put"]}, {"fetches": ["y"]}])
  f.graph("what is not a list", lambda: raw.TensorListLength(input_handle=raw.TensorDataset(components=[tf.constant(1)], output_shapes=[[]]), name="y"), fails)
  f.write()


if __name__ == "__main__":
  main()
