"""Elementwise maths, reductions and matrix products: math_unary, math_binary, reductions, matmul."""
from golden import *

NAN, INF = float("nan"), float("inf")
FC = FLOATS + COMPLEX


def unary():
  f = File(__file__, "math_unary.json")
  domains = {"Sqrt": (0.1, 9), "Rsqrt": (0.1, 9), "Log": (0.1, 9), "Log1p": (-0.8, 5), "Reciprocal": (0.3, 4),
             "Round": (-4, 4), "Floor": (-4, 4), "Ceil": (-4, 4)}
  types = {
      "Abs": FLOATS + SIGNED, "Neg": FC + SIGNED, "Sign": FC + SIGNED, "Square": NUMBERS, "Sqrt": FC, "Rsqrt": FC,
      "Reciprocal": FC, "Exp": FC, "Log": FC, "Log1p": FC, "Cos": FC, "Tanh": FC, "Sigmoid": FC, "Floor": FLOATS,
      "Ceil": FLOATS, "Round": FLOATS + ["int32", "int64"],
  }
  special = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 30.0, -30.0, 80.0, -80.0, 1e-6, -1e-6]
  for op, dtypes in types.items():
    lo, hi = domains.get(op, (-3, 3))
    for d in dtypes:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3], lo, hi)])
    name = "%s keeps rank 5" % op
    f.case(name, op, [rnd(name, "float", [1, 2, 1, 3, 2], lo, hi)])
    name = "%s of a long row uses the same function in every lane" % op
    f.case(name, op, [rnd(name, "float", [23], lo, hi)])
    f.case("%s of a scalar" % op, op, [f32(0.75)])
    f.case("%s of an empty tensor" % op, op, [f32([], [0, 3])])
    for d in ["float", "double"]:
      f.case("%s of special %s values" % (op, d), op, [t(d, special)], grad=False)
    for d in ["half", "bfloat16"]:
      f.case("%s of special %s values" % (op, d), op, [t(d, special[:13])], grad=False)
  for op in ["Abs", "Neg", "Square", "Sign"]:
    for d in SIGNED:
      i = np.iinfo(STORAGE[d])
      f.case("%s of the extremes of %s wraps" % (op, d), op, [t(d, [i.min, i.max, 0, -1, i.max - 1], None)])
  for d in UNSIGNED:
    f.case("Square of the extremes of %s wraps" % d, "Square", [t(d, np.array([np.iinfo(STORAGE[d]).max, 3], dtype=STORAGE[d]))])
  f.case("Exp of large doubles", "Exp", [f64([-700, 700, 709, 1e-12])])
  f.case("Log1p near zero keeps its digits", "Log1p", [f64([1e-12, -1e-9, 1e-5, 0.5])])
  f.case("Tanh near zero keeps its digits", "Tanh", [f64([1e-9, -1e-5, 1e-3, 20.0])])
  f.case("Log of negative numbers is not a number", "Log", [f32([-1, -0.5, 0, 1])], grad=False)
  f.case("Sqrt of negative numbers is not a number", "Sqrt", [f32([-1, -0.5, 0, 4])], grad=False)
  f.case("Cos of large angles", "Cos", [f32([100.0, -1000.0, 3.1415927, 6.2831855])])
  f.case("Cos of large doubles", "Cos", [f64([100.0, -1000.0, 3.141592653589793, 1e6])])
  f.case("LogicalNot of bools", "LogicalNot", [b([[True, False], [False, True]])])
  f.case("LogicalNot of a scalar", "LogicalNot", [b(True)])
  f.case("LogicalNot of an empty tensor", "LogicalNot", [b([], [0])])
  # The gradients as ops of their own: (y, dy) for these four.
  for op in ["SqrtGrad", "RsqrtGrad", "SigmoidGrad", "TanhGrad"]:
    for d in FC:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3], 0.2, 0.9), rnd(name + "dy", d, [2, 3])])
    f.case("%s of an empty tensor" % op, op, [f32([], [2, 0]), f32([], [2, 0])])
  for d in FLOATS:
    name = "CheckNumerics lets %s through" % d
    f.case(name, "CheckNumerics", [rnd(name, d, [2, 3])], {"message": "checked"})
  f.case("CheckNumerics refuses a NaN", "CheckNumerics", [f32([1, NAN, 2])], {"message": "the loss"}, error="the loss")
  f.case("CheckNumerics refuses an infinity", "CheckNumerics", [f64([1, 2, -INF])], {"message": "the loss"}, error="the loss")
  f.case("CheckNumerics refuses a half NaN", "CheckNumerics", [t("half", [NAN])], {"message": "halves"}, error="halves")
  f.write()


def binary():
  f = File(__file__, "math_binary.json")
  cmp_types = REALS
  eq_types = NUMBERS + ["bool", "string"] + QUANTIZED
  types = {
      "AddV2": NUMBERS, "Add": FC + SIGNED + ["uint8", "string"], "Sub": NUMBERS, "Mul": NUMBERS, "Div": NUMBERS,
      "RealDiv": FC, "DivNoNan": FC, "FloorDiv": REALS, "FloorMod": REALS, "Pow": FC + SIGNED, "Maximum": REALS,
      "Minimum": REALS, "SquaredDifference": FC + ["int32", "int64"], "Equal": eq_types, "NotEqual": eq_types,
      "Less": cmp_types, "LessEqual": cmp_types, "Greater": cmp_types, "GreaterEqual": cmp_types,
  }
  comparisons = ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]
  divisions = ["Div", "RealDiv", "FloorDiv", "FloorMod"]
  shapes = [([2, 3], [3]), ([3], [2, 3]), ([2, 1], [1, 3]), ([], [2, 3]), ([2, 3], []), ([], []), ([2, 1, 3, 1, 2], [2, 1, 2, 1]),
            ([0, 3], [1, 3]), ([0], []), ([1], [0]), ([2, 3, 2], [2, 1, 1])]
  for op, dtypes in types.items():

    def args(name, d, xs, ys):
      if op == "Pow":
        lo, hi = (0.2, 2) if d in FC else (-3, 4)
        return rnd(name + "x", d, xs, lo, hi), rnd(name + "y", d, ys, 0 if d in SIGNED else -2, 3)
      y = rnd(name + "y", d, ys, *((0, 3) if op in comparisons and d in INTS + QUANTIZED else (None, None)))
      x = rnd(name + "x", d, xs, *((0, 3) if op in comparisons and d in INTS + QUANTIZED else (None, None)))
      if op in comparisons and d in FLOATS:
        x.array, y.array = np.round(x.array.astype(np.float32)).astype(x.array.dtype), np.round(y.array.astype(np.float32)).astype(y.array.dtype)
      if op in divisions:
        y.array[y.array == 0] = 3
      return x, y

    for d in dtypes:
      name = "%s of %s" % (op, d)
      f.case(name, op, list(args(name, d, [2, 3], [2, 3])))
      if d in ("float", "double", "int32", "half", "complex64", "string", "bool"):
        name = "%s of %s with a broadcast row" % (op, d)
        f.case(name, op, list(args(name, d, [2, 3], [3])))
    for xs, ys in shapes:
      for d in ["float"] + (["int32"] if "int32" in dtypes and ys == [1, 3] else []):
        name = "%s of %s %s and %s broadcast" % (op, d, xs, ys)
        f.case(name, op, list(args(name, d, xs, ys)))
    name = "%s of long rows" % op
    f.case(name, op, list(args(name, "float", [19], [19])), grad=False)
    f.case("%s of shapes that do not fit" % op, op, [f32([1, 2, 3]), f32([1, 2])], error=True)
    f.case("%s of matrices that do not fit" % op, op, [f32(np.ones([2, 3])), f32(np.ones([3, 2]))], error=True)
    x = [NAN, 1, INF, -INF, 0.0, -0.0, INF, 1, -1, NAN, 2, -INF, 0.0]
    y = [1, NAN, INF, INF, -0.0, 0.0, 1, 0, 0, NAN, INF, -INF, 0.0]
    for d in ["float", "double"]:
      f.case("%s of special %s values" % (op, d), op, [t(d, x), t(d, y)], grad=False)
  # Division and remainder, by sign, for every integer type.
  for op in ["Div", "FloorDiv", "FloorMod"]:
    for d in SIGNED:
      f.case("%s of %s by sign" % (op, d), op, [t(d, [7, -7, 7, -7, 6, -6, 0, 1]), t(d, [2, 2, -2, -2, 3, 3, 5, -5])])
    for d in UNSIGNED:
      f.case("%s of %s truncates" % (op, d), op, [t(d, [7, 200, 9]), t(d, [2, 7, 10])])
    for d in INTS:
      f.case("%s of %s by zero is refused" % (op, d), op, [t(d, [1, 2]), t(d, [1, 0])], error="ivision by zero")
    f.case("%s of int32 by a zero scalar is refused" % op, op, [i32([1, 2]), i32(0)], error="ivision by zero")
    f.case("%s of an empty tensor by zero gives nothing" % op, op, [i32([], [0]), i32(0)])
  for op in ["FloorDiv", "FloorMod"]:
    for d in FLOATS:
      f.case("%s of %s by sign" % (op, d), op, [t(d, [7, -7, 7, -7, 5.5, -5.5, 0, 1]), t(d, [2, 2, -2, -2, 2.5, 2.5, 5, -5])])
  for d in SIGNED:
    f.case("Pow of %s by a negative exponent is refused" % d, "Pow", [t(d, [2, 3]), t(d, [2, -1])], error="egative")
    f.case("Pow of %s by an exponent of zero" % d, "Pow", [t(d, [2, 0, -3]), t(d, [0, 0, 3])])
  f.case("Pow of int32 overflows by wrapping", "Pow", [i32([10, 3, -2]), i32([10, 21, 31])])
  f.case("Pow of floats by integers and halves", "Pow", [f32([2, -2, -2, 0, 0, 4]), f32([3, 3, 2, 0, 2, 0.5])], grad=False)
  f.case("the gradient of Pow at a base of zero", "Pow", [f32([0, 0, 2]), f32([2, 1, 3])])
  for d in INTS:
    i = np.iinfo(STORAGE[d])
    x, y = np.array([i.max, i.min, i.max], dtype=STORAGE[d]), np.array([1, 1, 2], dtype=STORAGE[d])
    for op in ["AddV2", "Sub", "Mul"]:
      f.case("%s of %s wraps" % (op, d), op, [t(d, x), t(d, y)])
  f.case("DivNoNan by zero is zero", "DivNoNan", [f32([1, 0, -1, 3]), f32([0, 0, 0, 2])])
  f.case("RealDiv by zero is infinite", "RealDiv", [f32([1, 0, -1, 3]), f32([0, 0, 0, 2])], grad=False)
  f.case("the gradient of Maximum where both are equal", "Maximum", [f32([1, 2, 3]), f32([1, 1, 4])])
  f.case("the gradient of Minimum where both are equal", "Minimum", [f32([1, 2, 3]), f32([1, 1, 4])])
  for op in ["Equal", "NotEqual"]:
    for d in ["float", "string", "int64"]:
      f.case("%s of %s shapes that do not fit, tolerated" % (op, d), op, [rnd("a", d, [3]), rnd("b", d, [2])],
             {"incompatible_shape_error": False})
    f.case("%s of shapes that fit, tolerated" % op, op, [f32([1, 2]), f32([1, 3])], {"incompatible_shape_error": False})
    f.case("%s of strings and one string" % op, op, [s([["a", "b"], ["", "a"]]), s("a")])
  for op in ["LogicalAnd", "LogicalOr"]:
    f.case("%s of bools" % op, op, [b([True, True, False, False]), b([True, False, True, False])])
    f.case("%s broadcasts a column over a row" % op, op, [b([[True], [False]]), b([[True, False, True]])])
    f.case("%s of a scalar and nothing" % op, op, [b(True), b([], [0])])
    f.case("%s of shapes that do not fit" % op, op, [b([True, True]), b([True, True, False])], error=True)
  f.case("Add of strings joins them", "Add", [s(["a", "bc"]), s(["d", ""])])
  f.case("Add of strings broadcasts", "Add", [s([["a"], ["b"]]), s(["x", "y"])])
  for d in NUMBERS:
    name = "AddN of three %s" % d
    f.case(name, "AddN", [rnd(name + str(i), d, [2, 2]) for i in range(3)])
  f.case("AddN of one tensor", "AddN", [f32([1, 2])])
  f.case("AddN of ten tensors", "AddN", [rnd("AddN%d" % i, "float", [3]) for i in range(10)])
  f.case("AddN of scalars", "AddN", [f32(1), f32(2)])
  f.case("AddN of empty tensors", "AddN", [f32([], [0, 2]), f32([], [0, 2])])
  f.case("AddN does not broadcast", "AddN", [f32([1, 2]), f32([1, 2, 3])], error=True)
  for d in ["int32", "int64"]:
    for x, y in [([2, 3], [3]), ([], [2]), ([2, 1, 3], [4, 1]), ([1], [1]), ([0, 1], [1, 5]), ([4, 5], [4, 5]), ([], [])]:
      f.case("BroadcastGradientArgs of %s %s and %s" % (d, x, y), "BroadcastGradientArgs", [t(d, x, [len(x)]), t(d, y, [len(y)])])
  f.case("BroadcastGradientArgs of shapes that do not fit", "BroadcastGradientArgs", [i32([2, 3]), i32([2, 4])], error=True)
  f.write()


def reductions():
  f = File(__file__, "reductions.json")
  types = {"Sum": NUMBERS, "Mean": NUMBERS, "Prod": NUMBERS, "Max": REALS, "Min": REALS}
  for op, dtypes in types.items():
    for d in dtypes:
      name = "%s of %s over the last axis" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3]), i32([1])])
      name = "%s of %s over everything" % (op, d)
      f.case(name, op, [rnd(name, d, [2, 3]), i32([0, 1])])
    for shape, axes in [([2, 3], [0]), ([2, 3], [-1]), ([2, 3], []), ([2, 3, 2], [1]), ([2, 3, 2], [0, 2]), ([2, 3, 2], [-3, 1]),
                        ([2, 1, 3, 1, 2], [1, 3]), ([2, 1, 3, 2, 2], [0, 2, 4]), ([5], [0]), ([2, 3, 2], [0, 1, 2])]:
      for keep in [False, True]:
        name = "%s of %s over %s%s" % (op, shape, axes, " keeps dims" if keep else "")
        f.case(name, op, [rnd(name, "float", shape, 0.5, 2), i32(axes, [len(axes)])], {"keep_dims": keep})
    name = "%s with int64 axes" % op
    f.case(name, op, [rnd(name, "double", [2, 3, 2]), i64([-1, 0])])
    f.case("%s over a scalar axis" % op, op, [rnd(op, "float", [2, 3]), i32(1)])
    f.case("%s of a scalar" % op, op, [f32(3), i32([], [0])])
    if op not in ("Max", "Min"):
      f.case("%s of nothing" % op, op, [f32([], [0]), i32([0])], grad=op != "Mean")
      f.case("%s of nothing by rows" % op, op, [f32([], [2, 0]), i32([1])], grad=False)
      f.case("%s of int32 nothing by rows" % op, op, [i32([], [2, 0]), i32([1])])if op != "Mean" else None
    else:
      f.case("%s of nothing by rows" % op, op, [f32([], [2, 0]), i32([1])], grad=False)
      f.case("%s of int32 nothing by rows" % op, op, [i32([], [2, 0]), i32([1])])
    f.case("%s of no rows" % op, op, [f32([], [0, 3]), i32([1])], grad=False)
    f.case("%s over an axis too large" % op, op, [f32([[1, 2]]), i32([2])], error="2")
    f.case("%s over an axis too small" % op, op, [f32([[1, 2]]), i32([-3])], error="-3")
    f.case("%s over an axis twice" % op, op, [f32([[1, 2]]), i32([0, 0])], error=True)
    f.case("%s of NaN and infinity" % op, op, [f32([[NAN, 1, 2], [INF, 1, 0], [-INF, INF, 1], [1, 2, NAN]]), i32([1])], grad=False)
  f.case("Sum of int8 wraps", "Sum", [t("int8", [100, 100, 100]), i32([0])])
  f.case("Sum of uint8 wraps", "Sum", [t("uint8", [200, 200]), i32([0])])
  f.case("Prod of int16 wraps", "Prod", [t("int16", [300, 300]), i32([0])])
  f.case("Mean of int32 truncates toward zero", "Mean", [i32([[1, 2, 2], [-1, -2, -2]]), i32([1])])
  f.case("Mean of int8 sums beyond its range", "Mean", [t("int8", [100, 100, 100]), i32([0])])
  f.case("Sum of many floats", "Sum", [f32(np.round(rng("many").uniform(-1, 1, 100), 2)), i32([0])], grad=False)
  f.case("Mean of many halves", "Mean", [t("half", np.round(rng("many").uniform(-1, 1, 100), 2)), i32([0])])
  f.case("the gradient of Max shared between ties", "Max", [f32([[1, 3, 3], [2, 2, 2]]), i32([1])])
  f.case("the gradient of Min shared between ties", "Min", [f32([[1, 1, 3], [2, 2, 2]]), i32([1])])
  f.case("the gradient of Prod with one zero", "Prod", [f32([[2, 0, 3], [1, 2, 3]]), i32([1])])
  f.case("the gradient of Prod with two zeros", "Prod", [f32([[0, 0, 3], [1, 2, 3]]), i32([1])])
  for op in ["All", "Any"]:
    m = b([[True, True, False], [True, True, True], [False, False, False]])
    for axes in [[0], [1], [-1], [0, 1], []]:
      for keep in [False, True]:
        f.case("%s over %s%s" % (op, axes, " keeps dims" if keep else ""), op, [m, i32(axes, [len(axes)])], {"keep_dims": keep})
    f.case("%s with int64 axes" % op, op, [m, i64([1])])
    f.case("%s of nothing" % op, op, [b([], [0]), i32([0])])
    f.case("%s of nothing by rows" % op, op, [b([], [2, 0]), i32([1])])
    f.case("%s over an axis too large" % op, op, [m, i32([2])], error="2")
  for op, outs in [("ArgMax", ["int16", "uint16", "int32", "int64"]), ("ArgMin", ["int32", "int64"])]:
    for d in REALS + ["bool"]:
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name, d, [3, 4]), i32(1)])
    for o in outs:
      name = "%s as %s" % (op, o)
      f.case(name, op, [rnd(name, "float", [3, 4]), i32(0)], {"output_type": o})
    for shape, axis in [([5], 0), ([2, 3, 4], 1), ([2, 3, 4], -1), ([2, 3, 4], -3), ([2, 1, 3, 2, 2], 2)]:
      name = "%s of %s along %d" % (op, shape, axis)
      f.case(name, op, [rnd(name, "float", shape), i32(axis)])
    for d in ["int64"]:
      f.case("%s along an %s axis" % (op, d), op, [rnd(op, "float", [2, 3]), t(d, -1)])
    f.case("%s takes the first of equals" % op, op, [f32([[1, 3, 3, 1], [2, 2, 2, 2], [0, -1, -1, 0]]), i32(1)])
    f.case("%s of many equals" % op, op, [f32([5] * 20 + [4] + [5] * 3), i32(0)])
    f.case("%s with NaN" % op, op, [f32([[1, NAN, 3], [NAN, 1, 2], [-INF, INF, 0]]), i32(1)])
    f.case("%s of no rows" % op, op, [f32([], [0, 3]), i32(1)])
    f.case("%s along nothing" % op, op, [f32([], [2, 0]), i32(1)], error=True)
    f.case("%s along an axis too large" % op, op, [f32([1, 2]), i32(1)], error=True)
    f.case("%s along an axis too small" % op, op, [f32([1, 2]), i32(-2)], error=True)
    f.case("%s of a scalar" % op, op, [f32(1), i32(0)], error=True)
  for d in FLOATS:
    name = "L2Loss of %s" % d
    f.case(name, "L2Loss", [rnd(name, d, [2, 3])])
  f.case("L2Loss of a scalar", "L2Loss", [f32(3)])
  f.case("L2Loss of nothing", "L2Loss", [f32([], [0])])
  f.write()


def matmul():
  f = File(__file__, "matmul.json")
  types = FLOATS + COMPLEX + ["int32", "int64"]
  for d in types:
    name = "MatMul of %s" % d
    f.case(name, "MatMul", [rnd(name + "a", d, [2, 3]), rnd(name + "b", d, [3, 4])])
  for ta in [False, True]:
    for tb in [False, True]:
      for d in ["float", "double", "int32", "complex64"]:
        if not (ta or tb) and d != "double":
          continue
        name = "MatMul of %s%s%s" % (d, " a transposed" if ta else "", " b transposed" if tb else "") + " by flags"
        f.case(name, "MatMul", [rnd(name + "a", d, [3, 2] if ta else [2, 3]), rnd(name + "b", d, [4, 3] if tb else [3, 4])],
               {"transpose_a": ta, "transpose_b": tb})
  for a, bb in [([1, 5], [5, 1]), ([5, 1], [1, 5]), ([1, 1], [1, 1]), ([0, 3], [3, 2]), ([2, 0], [0, 3]), ([2, 3], [3, 0]), ([1, 3], [3, 7]),
                ([7, 3], [3, 1]), ([9, 11], [11, 10])]:
    name = "MatMul of %s and %s" % (a, bb)
    f.case(name, "MatMul", [rnd(name + "a", "float", a), rnd(name + "b", "float", bb)])
  f.case("MatMul of inner sizes that differ", "MatMul", [f32(np.ones([2, 3])), f32(np.ones([2, 3]))], error=True)
  f.case("MatMul of a vector", "MatMul", [f32(np.ones([3])), f32(np.ones([3, 2]))], error=True)
  f.case("MatMul of rank three", "MatMul", [f32(np.ones([1, 2, 3])), f32(np.ones([1, 3, 2]))], error=True)
  f.case("MatMul with NaN times zero", "MatMul", [f32([[NAN, 1], [INF, 1]]), f32([[0], [1]])], grad=False)
  for op in ["BatchMatMul", "BatchMatMulV2"]:
    for d in types + (["int16"] if op == "BatchMatMulV2" else []):
      name = "%s of %s" % (op, d)
      f.case(name, op, [rnd(name + "a", d, [2, 2, 3]), rnd(name + "b", d, [2, 3, 2])])
    for ax in [False, True]:
      for ay in [False, True]:
        for d in ["float", "complex64"]:
          name = "%s of %s%s%s by flags" % (op, d, " x adjoint" if ax else "", " y adjoint" if ay else "")
          f.case(name, op, [rnd(name + "a", d, [2, 3, 2] if ax else [2, 2, 3]), rnd(name + "b", d, [2, 2, 3] if ay else [2, 3, 2])],
                 {"adj_x": ax, "adj_y": ay})
    for a, bb in [([2, 3], [3, 2]), ([0, 2, 3], [0, 3, 2]), ([2, 2, 0], [2, 0, 2]), ([1, 2, 2, 2], [1, 2, 2, 3])]:
      name = "%s of %s and %s" % (op, a, bb)
      f.case(name, op, [rnd(name + "a", "float", a), rnd(name + "b", "float", bb)])
    f.case("%s of inner sizes that differ" % op, op, [f32(np.ones([2, 2, 3])), f32(np.ones([2, 2, 3]))], error=True)
    f.case("%s of a vector" % op, op, [f32(np.ones([3])), f32(np.ones([3, 3]))], error=True)
  for a, bb in [([2, 2, 3], [3, 2]), ([2, 3], [2, 3, 2]), ([1, 2, 3], [2, 3, 2]), ([2, 1, 2, 2], [1, 2, 2, 1]), ([2, 1, 1, 2, 2], [2, 2, 1])]:
    name = "BatchMatMulV2 of %s and %s broadcast" % (a, bb)
    f.case(name, "BatchMatMulV2", [rnd(name + "a", "float", a), rnd(name + "b", "float", bb)])
  f.case("BatchMatMul does not broadcast", "BatchMatMul", [f32(np.ones([2, 2, 3])), f32(np.ones([1, 3, 2]))], error=True)
  f.case("BatchMatMulV2 of batches that do not fit", "BatchMatMulV2", [f32(np.ones([2, 2, 3])), f32(np.ones([3, 3, 2]))], error=True)
  f.write()


if __name__ == "__main__":
  unary()
  binary()
  reductions()
  matmul()
