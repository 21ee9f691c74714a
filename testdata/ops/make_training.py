"""The ops of the optimizers, on reference and on resource variables: training_dense, training_sparse."""
from golden import *

FC = FLOATS + COMPLEX

# op: (dtypes, the variables beside var with their range, the inputs after them)
# An input is "grad", "indices", "step" (an int64 scalar) or the value of a hyperparameter.
DENSE = {
    "GradientDescent": (FC, [], [("alpha", 0.1), "grad"]),
    "Momentum": (FC, [("accum", 0, 1)], [("lr", 0.1), "grad", ("momentum", 0.9)]),
    "Adagrad": (FC, [("accum", 0.1, 1)], [("lr", 0.1), "grad"]),
    "Adam": (FC, [("m", 0, 0.5), ("v", 0.1, 1)],
             [("beta1_power", 0.81), ("beta2_power", 0.998), ("lr", 0.01), ("beta1", 0.9), ("beta2", 0.999), ("epsilon", 1e-4), "grad"]),
    "Adadelta": (FC, [("accum", 0.1, 1), ("accum_update", 0.1, 1)], [("lr", 0.5), ("rho", 0.95), ("epsilon", 1e-3), "grad"]),
    "RMSProp": (FC, [("ms", 0.5, 1), ("mom", 0, 0.5)], [("lr", 0.1), ("rho", 0.9), ("momentum", 0.5), ("epsilon", 1e-3), "grad"]),
    "CenteredRMSProp": (FC, [("mg", -0.2, 0.2), ("ms", 0.5, 1), ("mom", 0, 0.5)],
                        [("lr", 0.1), ("rho", 0.9), ("momentum", 0.5), ("epsilon", 1e-3), "grad"]),
    "AdagradDA": (["float", "double"], [("gradient_accumulator", -1, 1), ("gradient_squared_accumulator", 0.1, 1)],
                  ["grad", ("lr", 0.1), ("l1", 0.05), ("l2", 0.02), "step"]),
    "Ftrl": (FLOATS, [("accum", 0.1, 1), ("linear", -1, 1)], ["grad", ("lr", 0.1), ("l1", 0.05), ("l2", 0.02), ("lr_power", -0.5)]),
    "FtrlV2": (FLOATS, [("accum", 0.1, 1), ("linear", -1, 1)],
               ["grad", ("lr", 0.1), ("l1", 0.05), ("l2", 0.02), ("l2_shrinkage", 0.03), ("lr_power", -0.5)]),
    "ProximalAdagrad": (["float", "double"], [("accum", 0.1, 1)], [("lr", 0.1), ("l1", 0.05), ("l2", 0.02), "grad"]),
    "ProximalGradientDescent": (["float", "double"], [], [("alpha", 0.1), ("l1", 0.05), ("l2", 0.02), "grad"]),
}
SPARSE = {
    "Momentum": (FC, DENSE["Momentum"][1], [("lr", 0.1), "grad", "indices", ("momentum", 0.9)]),
    "Adagrad": (FC, DENSE["Adagrad"][1], [("lr", 0.1), "grad", "indices"]),
    "Adadelta": (FC, DENSE["Adadelta"][1], DENSE["Adadelta"][2] + ["indices"]),
    "RMSProp": (["half", "float", "double"] + COMPLEX, DENSE["RMSProp"][1], DENSE["RMSProp"][2] + ["indices"]),
    "CenteredRMSProp": (["half", "float", "double"] + COMPLEX, DENSE["CenteredRMSProp"][1], DENSE["CenteredRMSProp"][2] + ["indices"]),
    "AdagradDA": (["float", "double"], DENSE["AdagradDA"][1], ["grad", "indices"] + DENSE["AdagradDA"][2][1:]),
    "Ftrl": (FLOATS, DENSE["Ftrl"][1], ["grad", "indices"] + DENSE["Ftrl"][2][1:]),
    "FtrlV2": (FLOATS, DENSE["FtrlV2"][1], ["grad", "indices"] + DENSE["FtrlV2"][2][1:]),
    "ProximalAdagrad": (["float", "double"], DENSE["ProximalAdagrad"][1], [("lr", 0.1), ("l1", 0.05), ("l2", 0.02), "grad", "indices"]),
    "ProximalGradientDescent": (["float", "double"], [], [("alpha", 0.1), ("l1", 0.05), ("l2", 0.02), "grad", "indices"]),
}


def inputs(seed, kind, row, d, shape, idx=None, index_type="int32", **change):
  _, slots, rest = row
  out = [kind(rnd(seed + "var", d, shape))]
  out += [kind(rnd(seed + slot, d, shape, lo, hi)) for slot, lo, hi in slots]
  grad_shape = shape if idx is None else [len(idx)] + shape[1:]
  for x in rest:
    if x == "grad":
      out.append(rnd(seed + "grad", d, change.get("grad_shape", grad_shape)))
    elif x == "indices":
      out.append(t(index_type, idx, [len(idx)]))
    elif x == "step":
      out.append(i64(3))
    else:
      out.append(t(d, change.get(x[0], x[1])))
  return out


VARIANTS = {
    "Momentum": [({"use_nesterov": True}, {}), ({"use_locking": True}, {})],
    "Adam": [({"use_nesterov": True}, {})],
    "Adagrad": [({"update_slots": False}, {})],
    "Ftrl": [({}, {"lr_power": -0.7}), ({"multiply_linear_by_lr": True}, {}), ({}, {"l1": 5.0}), ({}, {"l1": 0.0, "l2": 0.0})],
    "FtrlV2": [({}, {"lr_power": -0.7}), ({"multiply_linear_by_lr": True}, {}), ({}, {"l1": 5.0})],
    "ProximalAdagrad": [({}, {"l1": 0.0, "l2": 0.0}), ({}, {"l1": 5.0})],
    "ProximalGradientDescent": [({}, {"l1": 0.0, "l2": 0.0}), ({}, {"l1": 5.0})],
    "AdagradDA": [({}, {"l1": 0.0, "l2": 0.0}), ({}, {"l1": 5.0})],
    "RMSProp": [({}, {"momentum": 0.0})],
    "CenteredRMSProp": [({}, {"momentum": 0.0})],
    "GradientDescent": [({"use_locking": True}, {})],
    "Adadelta": [],
}


def words(attrs, change):
  return " ".join("%s %s" % (k, v) for k, v in list(attrs.items()) + list(change.items()))


def dense():
  f = File(__file__, "training_dense.json")
  for base, row in DENSE.items():
    for op, kind in [("Apply" + base, ref), ("ResourceApply" + base, var)]:
      for d in row[0]:
        f.case("%s of %s" % (op, d), op, inputs(base + d, kind, row, d, [2, 3]))
      for attrs, change in VARIANTS[base]:
        f.case("%s with %s" % (op, words(attrs, change)), op, inputs(base, kind, row, "float", [5], **change), attrs)
      f.case("%s of a scalar" % op, op, inputs(base + "scalar", kind, row, "float", []))
      f.case("%s of nothing" % op, op, inputs(base, kind, row, "float", [0]))
      f.case("%s of a gradient of another shape" % op, op, inputs(base, kind, row, "float", [3], grad_shape=[2]), error=True)
      if kind is var:
        f.case("%s of a long row" % op, op, inputs(base + "long", kind, row, "float", [17]))
      if base != "GradientDescent":
        x = inputs(base, kind, row, "float", [3])
        at = next(i for i, h in enumerate(row[2]) if isinstance(h, tuple) and h[0] in ("lr", "alpha")) + 1 + len(row[1])
        x[at] = f32([0.1, 0.2])
        f.case("%s of a learning rate that is a vector" % op, op, x, error=True)
  f.write()


def sparse():
  f = File(__file__, "training_sparse.json")
  for base, row in SPARSE.items():
    for op, kind in [("SparseApply" + base, ref), ("ResourceSparseApply" + base, var)]:
      for d in row[0]:
        f.case("%s of %s" % (op, d), op, inputs(base + d, kind, row, d, [3, 2], [2, 0]))
      f.case("%s by int64" % op, op, inputs(base + "64", kind, row, "float", [3, 2], [1, 2], index_type="int64"))
      f.case("%s of a row twice" % op, op, inputs(base + "twice", kind, row, "float", [3, 2], [1, 0, 1]), tolerance=5e-5 if base == "Adadelta" else None)
      f.case("%s of rows of one" % op, op, inputs(base + "one", kind, row, "float", [4, 1], [3, 0, 3]))
      f.case("%s of no rows" % op, op, inputs(base, kind, row, "float", [3, 2], []))
      for attrs, change in VARIANTS[base]:
        f.case("%s with %s" % (op, words(attrs, change)), op, inputs(base, kind, row, "float", [3, 2], [2, 1], **change), attrs)
      f.case("%s of a row too large" % op, op, inputs(base, kind, row, "float", [3, 2], [0, 3]), error="3")
      f.case("%s of a negative row" % op, op, inputs(base, kind, row, "float", [3, 2], [-1]), error="-1")
      f.case("%s of a gradient of another shape" % op, op, inputs(base, kind, row, "float", [3, 2], [0, 1], grad_shape=[2, 3]), error=True)
  f.write()


if __name__ == "__main__":
  dense()
  sparse()
