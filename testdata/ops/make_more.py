"""Ops beyond the first tiers: functions, scans, stateless_random, fused."""
from golden import *

raw = tf.raw_ops
FC = FLOATS + COMPLEX


def dt(name):
  return tf.as_dtype(type_enum(name))


def functions():
  f = File(__file__, "functions.json")
  nan, inf = float("nan"), float("inf")
  for op, lo, hi in [("Tan", -1.4, 1.4), ("Asin", -0.9, 0.9), ("Acos", -0.9, 0.9), ("Atan", -3, 3), ("Sinh", -2, 2), ("Cosh", -2, 2),
                     ("Asinh", -3, 3), ("Acosh", 1.2, 4), ("Atanh", -0.9, 0.9), ("Erf", -2, 2), ("Erfc", -2, 2), ("Rint", -3, 3), ("Softsign", -3, 3)]:
    for d in FC if op not in ["Erf", "Erfc", "Rint", "Softsign"] else FLOATS if op != "Rint" else ["float", "double"]:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3], lo, hi)])
    f.case("%s of an empty tensor" % op, op, [f32([], [0, 3])])
  for op in ["IsNan", "IsInf", "IsFinite"]:
    for d in FLOATS:
      f.case("%s of %s" % (op, d), op, [t(d, [1, nan, inf, -inf, 0, -2.5])])
  f.case("Rint of halves", "Rint", [f64([0.5, 1.5, 2.5, -0.5, -1.5, 2.4, 2.6])])
  for d in FLOATS:
    f.case("SoftsignGrad of %s" % d, "SoftsignGrad", [rnd("ssg" + d, d, [2, 3]), rnd("ssx" + d, d, [2, 3])])
  f.case("_UnaryOpsComposition of three", "_UnaryOpsComposition", [rnd("compose", "float", [2, 5], 0.1, 3)], {"op_names": ["Sqrt", "Tanh", "Exp"]})
  f.case("_UnaryOpsComposition of doubles", "_UnaryOpsComposition", [rnd("compose", "double", [3], -1, 1)], {"op_names": ["Relu6", "Sigmoid", "Log", "Neg"]})
  f.write()


def scans():
  f = File(__file__, "scans.json")
  for op in ["Cumsum", "Cumprod"]:
    for d in NUMBERS:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3]), i32(1)])
    for axis in [0, 1, 2, -1, -3]:
      for exclusive in [False, True]:
        for reverse in [False, True]:
          name = "%s along %d%s%s" % (op, axis, " exclusive" if exclusive else "", " from the end" if reverse else "")
          f.case(name, op, [rnd(name, "float", [2, 3, 2], 0.5, 2), i64(axis)], {"exclusive": exclusive, "reverse": reverse})
    f.case("%s of nothing" % op, op, [f32([], [0, 2]), i32(0)])
    f.case("%s along a missing axis" % op, op, [f32([1, 2]), i32(1)], error=True)
    f.case("%s along a vector of axes" % op, op, [f32([1, 2]), i32([0])], error=True)
  f.case("Cumprod of a zero", "Cumprod", [f32([2, 0, 3, 4]), i32(0)])
  moved = NUMBERS + ["bool", "string"]
  for d in moved:
    f.case("ReverseV2 of %s" % d, "ReverseV2", [rnd("rev" + d, d, [2, 3]), i32([1])])
    f.case("ReverseSequence of %s" % d, "ReverseSequence", [rnd("revs" + d, d, [2, 3]), i32([2, 3])], {"seq_dim": 1})
  for axes in [[], [0], [-1], [0, 2], [1, 0, 2]]:
    f.case("ReverseV2 along %s" % axes, "ReverseV2", [rnd("r3", "float", [2, 3, 2]), i64(axes, [len(axes)])])
  f.case("ReverseV2 of a scalar", "ReverseV2", [f32(3), i32([], [0])])
  f.case("ReverseV2 of nothing", "ReverseV2", [f32([], [2, 0]), i32([0])])
  f.case("ReverseV2 along a missing axis", "ReverseV2", [f32([1, 2]), i32([1])], error=True)
  f.case("ReverseV2 along one axis twice", "ReverseV2", [f32([[1, 2]]), i32([1, -1])], error=True)
  f.case("ReverseV2 along a matrix of axes", "ReverseV2", [f32([[1, 2]]), i32([[1]])], error=True)
  for seq, batch in [(0, 1), (1, 0), (2, 0), (0, 2), (1, 2), (2, 1)]:
    shape = [3, 2, 4]
    lengths = [[3, 0, 2], [1, 2], [4, 2, 0, 1]][batch]
    lengths = [min(n, shape[seq]) for n in lengths]
    f.case("ReverseSequence along %d in batches along %d" % (seq, batch), "ReverseSequence", [rnd("rs", "float", shape), i64(lengths)],
           {"seq_dim": seq, "batch_dim": batch})
  x = f32([[1, 2, 3], [4, 5, 6]])
  f.case("ReverseSequence of too few lengths", "ReverseSequence", [x, i64([1])], {"seq_dim": 1}, error=True)
  f.case("ReverseSequence longer than there is", "ReverseSequence", [x, i64([1, 4])], {"seq_dim": 1}, error=True)
  f.case("ReverseSequence of a negative length", "ReverseSequence", [x, i64([1, -1])], {"seq_dim": 1}, error=True)
  f.case("ReverseSequence along the batches", "ReverseSequence", [x, i64([1, 1])], {"seq_dim": 0}, error=True)
  f.case("StringLength in bytes", "StringLength", [t("string", ["", "abc", "h\u00e4\u00df\u20ac".encode()])])
  f.case("StringLength in characters", "StringLength", [t("string", ["", "abc", "h\u00e4\u00df\u20ac".encode()])], {"unit": "UTF8_CHAR"})

  def stack(d, pushes, pops, size=-1):
    def build():
      h = raw.StackV2(max_size=size, elem_type=dt(d), stack_name="pile", name="stack")
      last = []
      for i, x in enumerate(pushes):
        with tf.control_dependencies(last):
          last = [raw.StackPushV2(handle=h, elem=tf.constant(x.array if hasattr(x, "array") else x), name="push%d" % i)]
      for i in range(pops):
        with tf.control_dependencies(last):
          last = [raw.StackPopV2(handle=h, elem_type=dt(d), name="pop%d" % i)]
    return build
  for d, values in [("float", [1.5, 2.5]), ("int32", [1, 2]), ("bool", [True, False])]:
    f.graph("a stack of %s" % d, stack(d, [np.array(v, STORAGE[d]) for v in values], 2), [{"fetches": ["pop0", "pop1"]}, {"fetches": ["pop1"]}])
  f.graph("a stack popped too often", stack("float", [np.float32(1)], 2), [{"fetches": ["pop1"], "error": True}])
  f.graph("a stack pushed too often", stack("float", [np.float32(1), np.float32(2)], 0, 1), [{"fetches": ["push1"], "error": True}])
  f.write()


def stateless():
  f = File(__file__, "stateless_random.json")
  for seed in [[3, 4], [0, 0], [-1, 2**40]]:
    f.case("StatelessRandomGetKeyCounter of %s" % seed, "StatelessRandomGetKeyCounter", [i64(seed)])
  f.case("StatelessRandomGetKeyCounter of int32", "StatelessRandomGetKeyCounter", [i32([7, -9])])
  f.case("StatelessRandomGetKeyCounter of one number", "StatelessRandomGetKeyCounter", [i64([1])], error=True)
  for op in ["StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"]:
    for d in FLOATS:
      f.case("%s of %s" % (op, d), op, [i32([3, 5]), i64([5, 6])], {"dtype": d})
      f.case("%sV2 of %s" % (op, d), op + "V2", [i32([7]), t("uint64", [12345]), t("uint64", [6, 7]), i32(1)], {"dtype": d})
    f.case("%s of a scalar" % op, op, [i32([], [0]), i32([5, 6])])
    f.case("%sV2 by the best algorithm" % op, op + "V2", [i64([2, 2]), t("uint64", [1]), t("uint64", [0, 9]), i32(3)])
    f.case("%sV2 by an unknown algorithm" % op, op + "V2", [i64([2, 2]), t("uint64", [1]), t("uint64", [0, 9]), i32(17)], error=True)
    f.case("%s of three seeds" % op, op, [i32([2]), i32([5, 6, 7])], error=True)
  logits = rnd("logits", "double", [2, 4], -2, 2)
  for d in FLOATS:
    f.case("StatelessMultinomial of %s" % d, "StatelessMultinomial", [rnd("logits", d, [3, 4], -2, 2), i32(5), i64([1, 2])], {"output_dtype": "int64"})
    f.graph("Multinomial of %s in two runs" % d,
            lambda: raw.Multinomial(logits=tf.constant(rnd("logits", "double", [3, 4], -2, 2).array, dt(d)), num_samples=6, seed=3, seed2=4, name="y"),
            [{"fetches": ["y"]}, {"fetches": ["y"]}])
  f.case("StatelessMultinomial as int32", "StatelessMultinomial", [logits, i32(9), i64([1, 2])], {"output_dtype": "int32"})
  f.case("StatelessMultinomial with impossible classes", "StatelessMultinomial", [f32([[float("-inf"), 0, 1, float("-inf")]]), i32(9), i64([1, 2])], {})
  f.case("StatelessMultinomial of none", "StatelessMultinomial", [logits, i32(0), i64([1, 2])], {})
  f.case("StatelessMultinomial of no classes", "StatelessMultinomial", [f32([], [2, 0]), i32(2), i64([1, 2])], {}, error=True)
  f.case("StatelessMultinomial of a vector", "StatelessMultinomial", [f32([1, 2]), i32(2), i64([1, 2])], {}, error=True)
  f.case("StatelessMultinomial of a negative number", "StatelessMultinomial", [logits, i32(-1), i64([1, 2])], {}, error=True)
  f.write()


def fused():
  f = File(__file__, "fused.json")
  a, w, bias = rnd("a", "float", [3, 4], -1, 1), rnd("w", "float", [4, 5], -1, 1), rnd("bias", "float", [5], -1, 1)
  for after in [[], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"], ["Tanh"], ["Sigmoid"]]:
    ops = ["BiasAdd"] + after
    f.case("_FusedMatMul of %s" % ops, "_FusedMatMul", [a, w, bias], {"fused_ops": ops, "leakyrelu_alpha": 0.3})
  f.case("_FusedMatMul transposed", "_FusedMatMul", [rnd("at", "float", [4, 3]), rnd("wt", "float", [5, 4]), bias],
         {"fused_ops": ["BiasAdd", "Relu"], "transpose_a": True, "transpose_b": True})
  f.case("_FusedMatMul of matrices that do not fit", "_FusedMatMul", [a, a, bias], {"fused_ops": ["BiasAdd"]}, error=True)
  x, k, b2 = rnd("x", "float", [2, 4, 5, 2], -1, 1), rnd("k", "float", [3, 2, 2, 3], -1, 1), rnd("b2", "float", [3])
  for padding in ["SAME", "VALID"]:
    for after in [[], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"]]:
      ops = ["BiasAdd"] + after
      f.case("_FusedConv2D %s of %s" % (padding, ops), "_FusedConv2D", [x, k, b2],
             {"fused_ops": ops, "strides": [1, 2, 1, 1], "padding": padding, "num_args": 1, "num_host_args": 0, "TArgs": ["float"], "leakyrelu_alpha": 0.3})
  norm = [rnd("n%d" % i, "float", [3], 0.5, 2) for i in range(4)]
  for after in [[], ["Relu"], ["Relu6"], ["Elu"], ["LeakyRelu"]]:
    ops = ["FusedBatchNorm"] + after
    f.case("_FusedConv2D of %s" % ops, "_FusedConv2D", [x, k] + norm,
           {"fused_ops": ops, "strides": [1, 1, 1, 1], "padding": "SAME", "num_args": 4, "num_host_args": 0, "TArgs": ["float"] * 4, "epsilon": 0.01})
  f.write()


if __name__ == "__main__":
  functions()
  scans()
  stateless()
  fused()
