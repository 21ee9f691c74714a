"""Seeded random ops, run after run, and candidate samplers: random, candidate_sampling."""
from golden import *

raw = tf.raw_ops


def dt(name):
  return tf.as_dtype(type_enum(name))


def random():
  f = File(__file__, "random.json")
  ops = {"RandomUniform": raw.RandomUniform, "RandomStandardNormal": raw.RandomStandardNormal, "TruncatedNormal": raw.TruncatedNormal}
  twice = [{"fetches": ["y"]}, {"fetches": ["y"]}]
  for name, op in ops.items():
    for d in FLOATS:
      f.graph("%s of %s in two runs" % (name, d), lambda: op(shape=[2, 5], dtype=dt(d), seed=1, seed2=2, name="y"), twice)
    f.graph("%s of an int64 shape" % name, lambda: op(shape=tf.constant([3, 7], tf.int64), dtype=tf.float32, seed=87654321, seed2=42, name="y"), twice)
    f.graph("%s with only the second seed" % name, lambda: op(shape=[5], dtype=tf.float32, seed=0, seed2=9, name="y"), twice)
    f.graph("%s with large seeds" % name, lambda: op(shape=[5], dtype=tf.float32, seed=2**40 + 7, seed2=-3, name="y"), twice)
    f.graph("%s of a scalar" % name, lambda: op(shape=tf.constant([], tf.int32), dtype=tf.float32, seed=4, seed2=5, name="y"), twice)
    f.graph("%s of nothing" % name, lambda: op(shape=[0, 3], dtype=tf.float32, seed=4, seed2=5, name="y"), twice)
    f.graph("%s of many" % name, lambda: op(shape=[300], dtype=tf.float32, seed=7, seed2=8, name="y"), [{"fetches": ["y"]}])
    f.graph("%s of many doubles" % name, lambda: op(shape=[101], dtype=tf.float64, seed=7, seed2=8, name="y"), [{"fetches": ["y"]}])

    def two():
      op(shape=[3], dtype=tf.float32, seed=1, seed2=2, name="y")
      op(shape=[3], dtype=tf.float32, seed=1, seed2=2, name="z")
      op(shape=[3], dtype=tf.float32, seed=1, seed2=3, name="w")
    f.graph("%s nodes each have their own stream" % name, two, [{"fetches": ["y", "z", "w"]}, {"fetches": ["y"]}, {"fetches": ["y", "z"]}])
    f.graph("%s of a changing shape" % name, lambda: op(shape=tf.placeholder(tf.int32, None, name="s"), dtype=tf.float32, seed=1, seed2=2, name="y"),
            [{"fetches": ["y"], "feeds": {"s": i32(v, [len(v)])}} for v in [[3], [2, 2], [1], [6]]])
    f.graph("%s of a negative shape" % name, lambda: op(shape=tf.placeholder(tf.int32, None, name="s"), dtype=tf.float32, seed=1, seed2=2, name="y"),
            [{"fetches": ["y"], "feeds": {"s": i32([-1])}, "error": True}])
  for d, lo, hi in [("int32", 0, 100), ("int32", -5, 5), ("int64", 0, 1 << 40), ("int64", -10, 3), ("int32", -2**31, 2**31 - 1)]:
    for shape_type in [tf.int32, tf.int64]:
      f.graph("RandomUniformInt of %s from %d to %d by %s" % (d, lo, hi, shape_type.name),
              lambda: raw.RandomUniformInt(shape=tf.constant([11], shape_type), minval=tf.constant(lo, dt(d)), maxval=tf.constant(hi, dt(d)), seed=3, seed2=4, name="y"), twice)
  f.graph("RandomUniformInt of an empty range", lambda: raw.RandomUniformInt(shape=[2], minval=3, maxval=tf.placeholder(tf.int32, [], name="m"), seed=1, seed2=2, name="y"),
          [{"fetches": ["y"], "feeds": {"m": i32(3)}, "error": True}])
  f.write()


def candidates():
  f = File(__file__, "candidate_sampling.json")
  true = tf.constant
  for name, op, kw in [("UniformCandidateSampler", raw.UniformCandidateSampler, {}), ("LogUniformCandidateSampler", raw.LogUniformCandidateSampler, {}),
                       ("FixedUnigramCandidateSampler", raw.FixedUnigramCandidateSampler, {"unigrams": [float(x) for x in range(1, 21)]})]:
    for unique in [True, False]:
      def build():
        op(true_classes=tf.constant([[1, 4], [2, 19]], tf.int64), num_true=2, num_sampled=6, unique=unique, range_max=20, seed=11, seed2=12, name="y", **kw)
      f.graph("%s %s" % (name, "without repeats" if unique else "with repeats"), build, [{"fetches": ["y:0", "y:1", "y:2"]}, {"fetches": ["y:0", "y:1", "y:2"]}])
    f.graph("%s of every class" % name, lambda: op(true_classes=tf.constant([[0]], tf.int64), num_true=1, num_sampled=5, unique=True, range_max=5, seed=1, seed2=2, name="y",
                                                   **({"unigrams": kw["unigrams"][:5]} if kw else {})), [{"fetches": ["y:0", "y:1", "y:2"]}])
    f.graph("%s of more than there are" % name, lambda: op(true_classes=tf.constant([[0]], tf.int64), num_true=1, num_sampled=6, unique=True, range_max=5, seed=1, seed2=2,
                                                           name="y", **({"unigrams": kw["unigrams"][:5]} if kw else {})), [{"fetches": ["y:0"], "error": True}])
    f.graph("%s of true classes of another width" % name, lambda: op(true_classes=tf.placeholder_with_default(tf.constant([[0, 1]], tf.int64), None), num_true=1,
            num_sampled=2, unique=False, range_max=5, seed=1, seed2=2, name="y", **({"unigrams": kw["unigrams"][:5]} if kw else {})), [{"fetches": ["y:0"], "error": True}])
  f.graph("FixedUnigramCandidateSampler distorted with reserved ids",
          lambda: raw.FixedUnigramCandidateSampler(true_classes=tf.constant([[2, 3]], tf.int64), num_true=2, num_sampled=4, unique=True, range_max=7, distortion=0.75,
                                                   num_reserved_ids=2, unigrams=[5., 4., 3., 2., 1.], seed=3, seed2=4, name="y"), [{"fetches": ["y:0", "y:1", "y:2"]}] * 2)
  f.graph("FixedUnigramCandidateSampler of the second of two shards",
          lambda: raw.FixedUnigramCandidateSampler(true_classes=tf.constant([[1]], tf.int64), num_true=1, num_sampled=3, unique=False, range_max=3, num_shards=2, shard=1,
                                                   unigrams=[5., 4., 3., 2., 1., 1.], seed=3, seed2=4, name="y"), [{"fetches": ["y:0", "y:1", "y:2"]}])
  f.graph("FixedUnigramCandidateSampler of a file",
          lambda: raw.FixedUnigramCandidateSampler(true_classes=tf.constant([[1]], tf.int64), num_true=1, num_sampled=3, unique=False, range_max=3, vocab_file="{TMP}/words.csv",
                                                   seed=3, seed2=4, name="y"), [{"fetches": ["y:0", "y:1", "y:2"]}], files={"words.csv": b"apple,5\npear,2\nplum,9\n"})
  f.case("ComputeAccidentalHits of rows", "ComputeAccidentalHits", [i64([[1, 4], [2, 9], [0, 7]]), i64([4, 2, 0, 4, 11])], {"num_true": 2})
  f.case("ComputeAccidentalHits of none", "ComputeAccidentalHits", [i64([[1], [2]]), i64([5, 6])], {"num_true": 1})
  f.case("ComputeAccidentalHits of another width", "ComputeAccidentalHits", [i64([[1], [2]]), i64([5, 6])], {"num_true": 2}, error=True)
  f.write()


if __name__ == "__main__":
  random()
  candidates()
