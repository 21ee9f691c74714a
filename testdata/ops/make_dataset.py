"""Datasets and iterators: dataset."""
import gzip

from golden import *

D = tf.data.Dataset
COUNT_MAX = 60


def flat(structure):
  return [tf.identity(t, name="y%d" % i) for i, t in enumerate(tf.nest.flatten(structure))]


def elements(name, build, setup=None, tmp=""):
  """How many elements there are before an error."""
  with tf.Graph().as_default():
    fetches = build()
    with tf.Session(config=config()) as sess:
      if setup:
        feed = {}
        for k, v in setup.get("feeds", {}).items():
          a = np.array(v.array, copy=True)
          if v.dtype == "string":
            for i in np.ndindex(a.shape):
              a[i] = a[i].replace(b"{TMP}", tmp.encode())
          feed[k + ":0"] = a
        sess.run(setup["targets"], feed)
      n = 0
      while n < COUNT_MAX:
        try:
          sess.run(fetches)
          n += 1
        except tf.errors.OpError:
          break
      return n, len(fetches)


def one_shot(f, name, make, errors=2):
  def build():
    return flat(tf.data.make_one_shot_iterator(make()).get_next())
  count, width = elements(name, build)
  fetches = ["y%d" % i for i in range(width)]
  f.graph(name, build, [{"fetches": fetches}] * count + ([{"fetches": fetches, "error": True}] * errors if count < COUNT_MAX else []), whole=True)


def initializable(f, name, make, setups, files=None):
  def build():
    it = tf.data.make_initializable_iterator(make())
    tf.group(it.initializer, name="init")
    return flat(it.get_next())
  steps = []
  tmp = tempfile.mkdtemp()
  for k, v in (files or {}).items():
    with open(os.path.join(tmp, k), "wb") as file:
      file.write(v)
  for setup in setups:
    setup = dict(setup, targets=["init"])
    count, width = elements(name, build, setup, tmp)
    fetches = ["y%d" % i for i in range(width)]
    steps += [setup] + [{"fetches": fetches}] * count + [{"fetches": fetches, "error": True}]
  shutil.rmtree(tmp)
  f.graph(name, build, steps, files=files, whole=True)


def main():
  f = File(__file__, "dataset.json")
  one_shot(f, "a range", lambda: D.range(5))
  one_shot(f, "a range with steps backwards", lambda: D.range(10, 1, -3))
  one_shot(f, "an empty range", lambda: D.range(3, 3))
  one_shot(f, "tensors", lambda: D.from_tensors((tf.constant([1, 2]), "a")))
  one_shot(f, "slices", lambda: D.from_tensor_slices({"a": np.arange(4), "b": np.arange(8.).reshape(4, 2), "s": ["w", "x", "y", "z"]}))
  one_shot(f, "batches", lambda: D.range(10).batch(4))
  one_shot(f, "batches without the rest", lambda: D.from_tensor_slices(np.arange(10.).reshape(5, 2)).batch(2, drop_remainder=True))
  one_shot(f, "batches of strings", lambda: D.from_tensor_slices(["a", "bb", "c"]).batch(2))
  one_shot(f, "batches of shapes that differ", lambda: D.range(1, 4).map(lambda n: tf.fill([n], n)).batch(2), errors=1)
  one_shot(f, "batches taken apart", lambda: D.range(7).batch(3).unbatch())
  one_shot(f, "padded batches", lambda: D.range(1, 6).map(lambda n: tf.fill([n], n)).padded_batch(2, [None]))
  one_shot(f, "padded batches of given size and value",
           lambda: D.range(1, 5).map(lambda n: (tf.fill([n, 2], n), n)).padded_batch(3, ([5, 3], []), (tf.constant(-1, tf.int64), tf.constant(0, tf.int64))))
  one_shot(f, "padded batches too small", lambda: D.range(1, 5).map(lambda n: tf.fill([n], n)).padded_batch(2, [3]))
  one_shot(f, "repeated, skipped and taken", lambda: D.range(3).repeat(3).skip(2).take(5))
  one_shot(f, "nothing repeated for ever", lambda: D.range(0).repeat())
  one_shot(f, "more skipped than there is", lambda: D.range(3).skip(5))
  one_shot(f, "a shard", lambda: D.range(8).shard(3, 1))
  one_shot(f, "one after the other", lambda: D.range(2).concatenate(D.range(10, 12)))
  one_shot(f, "side by side", lambda: D.zip((D.range(3), D.from_tensor_slices(np.array([.5, 1.5], np.float32)))))
  one_shot(f, "mapped", lambda: D.range(4).map(lambda v: (v * v, tf.cast(v, tf.float32) / 2)))
  one_shot(f, "mapped in parallel and prefetched", lambda: D.range(6).map(lambda v: v + 1, num_parallel_calls=2).prefetch(2))
  one_shot(f, "mapped with an error", lambda: D.range(3).map(lambda v: tf.check_numerics(1. / tf.cast(v - 1, tf.float32), "bad")), errors=1)
  one_shot(f, "mapped with errors ignored", lambda: D.range(4).map(lambda v: tf.check_numerics(1. / tf.cast(v - 1, tf.float32), "bad")).apply(tf.data.experimental.ignore_errors()))
  one_shot(f, "filtered", lambda: D.range(12).map(lambda v: v * v + 1).filter(lambda v: tf.equal(v % 2, 0)))
  one_shot(f, "flat-mapped", lambda: D.range(4).flat_map(lambda n: D.range(n)))
  for cycle, block in [(2, 1), (2, 3), (3, 2), (5, 1)]:
    one_shot(f, "interleaved %d by %d" % (cycle, block), lambda: D.range(4).interleave(lambda n: D.range(10 * n, 11 * n + 1), cycle, block))
  one_shot(f, "scanned", lambda: D.range(5).apply(tf.data.experimental.scan(tf.constant(10, tf.int64), lambda s, v: (s + v, s * v))))
  one_shot(f, "taken while", lambda: D.range(9).apply(tf.data.experimental.take_while(lambda v: v < 4)))
  one_shot(f, "mapped and batched", lambda: D.range(5).apply(tf.data.experimental.map_and_batch(lambda v: v * 2, 2)))
  one_shot(f, "cached and repeated", lambda: D.range(3).cache().repeat(2))
  one_shot(f, "shuffled", lambda: D.range(10).shuffle(4, seed=3))
  one_shot(f, "shuffled in a buffer larger than all", lambda: D.range(7).shuffle(100, seed=5))
  one_shot(f, "shuffled anew in each pass", lambda: D.range(8).shuffle(5, seed=3).repeat(3))
  one_shot(f, "shuffled alike in each pass", lambda: D.range(8).shuffle(5, seed=3, reshuffle_each_iteration=False).repeat(2))
  one_shot(f, "shuffled and repeated", lambda: D.range(6).apply(tf.data.experimental.shuffle_and_repeat(4, 3, seed=7)))
  one_shot(f, "lengths of strings", lambda: D.from_tensor_slices(["a b", "c", "d e f"]).map(lambda s: tf.strings.length(s)))

  initializable(f, "an iterator over a fed range", lambda: D.range(tf.placeholder(tf.int64, [], name="n")).batch(3),
                [{"feeds": {"n": i64(4)}}, {"feeds": {"n": i64(7)}}])
  initializable(f, "an iterator over fed rows", lambda: D.from_tensor_slices(tf.placeholder(tf.float32, [None, 2], name="x")).repeat(2).batch(3),
                [{"feeds": {"x": f32(np.arange(8).reshape(4, 2))}}])

  def captured():
    k = tf.placeholder(tf.int64, [], name="k")
    return D.range(4).map(lambda v: v * k).filter(lambda v: v > k)
  initializable(f, "functions with captured values", captured, [{"feeds": {"k": i64(3)}}, {"feeds": {"k": i64(5)}}])

  def uninitialized():
    it = tf.data.make_initializable_iterator(D.range(3))
    flat(it.get_next())
  f.graph("an iterator that was not initialized", uninitialized, [{"fetches": ["y0"], "error": True}], whole=True)

  names = lambda: tf.placeholder(tf.string, None, name="files")
  text = {"a.txt": b"one\ntwo\r\n\nlast", "b.txt": b"", "c.txt": b"x\n", "z.txt.gz": gzip.compress(b"zipped\nlines\n", mtime=0)}
  feed = lambda *n: [{"feeds": {"files": s(["{TMP}/" + x for x in n])}}]
  initializable(f, "lines of files", lambda: tf.data.TextLineDataset(names()), feed("a.txt", "b.txt", "c.txt"), text)
  initializable(f, "lines of a compressed file", lambda: tf.data.TextLineDataset(names(), "GZIP"), feed("z.txt.gz"), text)
  initializable(f, "lines of a missing file", lambda: tf.data.TextLineDataset(names()), feed("c.txt", "none.txt"), text)
  initializable(f, "records of one length", lambda: tf.data.FixedLengthRecordDataset(names(), 3, 2, 1), feed("f.bin"), {"f.bin": b"HHabcdefF"})
  initializable(f, "records that do not fit", lambda: tf.data.FixedLengthRecordDataset(names(), 4, 2, 1), feed("f.bin"), {"f.bin": b"HHabcdefF"})
  with tempfile.TemporaryDirectory() as tmp:
    with tf.io.TFRecordWriter(os.path.join(tmp, "r")) as w:
      for r in [b"first", b"", b"third"]:
        w.write(r)
    with open(os.path.join(tmp, "r"), "rb") as file:
      records = file.read()
  initializable(f, "records", lambda: tf.data.TFRecordDataset(names()), feed("r.tfrecord"), {"r.tfrecord": records})
  initializable(f, "damaged records", lambda: tf.data.TFRecordDataset(names()), feed("r.tfrecord"), {"r.tfrecord": records[:-3]})

  def by_handle():
    first = tf.data.make_initializable_iterator(D.range(3))
    second = tf.data.make_one_shot_iterator(D.range(10, 13))
    tf.group(first.initializer, name="init")
    choose = tf.placeholder(tf.bool, [], name="choose")
    handle = tf.where(choose, first.string_handle(), second.string_handle())
    flat(tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next())
  y = lambda c, **kw: dict({"fetches": ["y0"], "feeds": {"choose": b(c)}}, **kw)
  f.graph("iterators by their handles as strings", by_handle, [{"targets": ["init"]}, y(True), y(False), y(True), y(False)], whole=True)

  def reduced():
    ds = D.range(5)
    tf.identity(ds.reduce(tf.constant(1, tf.int64), lambda s, v: s * 2 + v), name="y0")
  f.graph("reduced", reduced, [{"fetches": ["y0"]}], whole=True)
  f.write()


if __name__ == "__main__":
  main()
