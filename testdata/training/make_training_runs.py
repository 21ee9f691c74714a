"""Ten steps of every optimizer, initial values, schedules, clipping, moving averages, and a small network.

Writes optimizers.json, initializers.json, schedules.json, clip.json, ema.json and mlp.json beside this file; README.md
says what stands in them."""
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ops"))
sys.dont_write_bytecode = True
from golden import *  # noqa: E402

FOLDER = os.path.dirname(os.path.abspath(__file__))


def write(name, cases, **head):
  body = '{"script":%s,"tensorflow":%s,%s"cases":[\n%s\n]}\n' % (
      json.dumps(os.path.basename(__file__)), json.dumps(tf.__version__), "".join('"%s":%s,' % (k, dump(v)) for k, v in head.items()),
      ",\n".join(dump(c) for c in cases))
  json.loads(body)
  with open(os.path.join(FOLDER, name), "w") as file:
    file.write(body)
  print(name, len(cases), len(body))


def dt(name):
  return tf.as_dtype(type_enum(name))


def of(value, tensor):
  return from_run(value, type_name(tensor.dtype.base_dtype.as_datatype_enum))


def plain(args):
  """Arguments as JSON: numbers as doubles."""
  return {k: real(v, False) if isinstance(v, float) else v for k, v in args.items()}


# Optimizers ---------------------------------------------------------------------------------------------------------

train = tf.train
OPTIMIZERS = [
    ("GradientDescent", train.GradientDescentOptimizer, {"learning_rate": 0.1}),
    ("Momentum", train.MomentumOptimizer, {"learning_rate": 0.1, "momentum": 0.9}),
    ("Momentum", train.MomentumOptimizer, {"learning_rate": 0.1, "momentum": 0.9, "use_nesterov": True}),
    ("Adagrad", train.AdagradOptimizer, {"learning_rate": 0.1}),
    ("Adagrad", train.AdagradOptimizer, {"learning_rate": 0.1, "initial_accumulator_value": 0.5}),
    ("AdagradDA", train.AdagradDAOptimizer, {"learning_rate": 0.1}),
    ("AdagradDA", train.AdagradDAOptimizer, {"learning_rate": 0.1, "l1_regularization_strength": 0.05, "l2_regularization_strength": 0.02}),
    ("Adam", train.AdamOptimizer, {}),
    ("Adam", train.AdamOptimizer, {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.99, "epsilon": 0.001}),
    ("RMSProp", train.RMSPropOptimizer, {"learning_rate": 0.1}),
    ("RMSProp", train.RMSPropOptimizer, {"learning_rate": 0.1, "decay": 0.8, "momentum": 0.5, "epsilon": 0.001}),
    ("RMSProp", train.RMSPropOptimizer, {"learning_rate": 0.1, "momentum": 0.5, "centered": True}),
    ("Ftrl", train.FtrlOptimizer, {"learning_rate": 0.1}),
    ("Ftrl", train.FtrlOptimizer, {"learning_rate": 0.1, "l1_regularization_strength": 0.05, "l2_regularization_strength": 0.02}),
    ("Ftrl", train.FtrlOptimizer, {"learning_rate": 0.1, "l1_regularization_strength": 0.05, "l2_shrinkage_regularization_strength": 0.03}),
    ("Ftrl", train.FtrlOptimizer, {"learning_rate": 0.1, "learning_rate_power": -0.7, "initial_accumulator_value": 0.3}),
    ("Adadelta", train.AdadeltaOptimizer, {"learning_rate": 1.0}),
    ("Adadelta", train.AdadeltaOptimizer, {"learning_rate": 0.5, "rho": 0.9, "epsilon": 0.001}),
    ("ProximalGradientDescent", train.ProximalGradientDescentOptimizer, {"learning_rate": 0.1}),
    ("ProximalGradientDescent", train.ProximalGradientDescentOptimizer,
     {"learning_rate": 0.1, "l1_regularization_strength": 0.05, "l2_regularization_strength": 0.02}),
    ("ProximalAdagrad", train.ProximalAdagradOptimizer, {"learning_rate": 0.1}),
    ("ProximalAdagrad", train.ProximalAdagradOptimizer,
     {"learning_rate": 0.1, "l1_regularization_strength": 0.05, "l2_regularization_strength": 0.02}),
]


def run_optimizer(make, args, d, resource, sparse):
  """Ten steps; returns what is recorded beside the case's heading."""
  with tf.Graph().as_default() as graph:
    step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step", use_resource=resource)
    if sparse:
      starts = [("embedding", rnd("embedding" + d, d, [4, 2]))]
    else:
      starts = [("w", rnd("w" + d, d, [2, 2])), ("b", rnd("b" + d, d, [3]))]
    variables = [tf.Variable(x.array, name=n, use_resource=resource) for n, x in starts]
    args = dict(args, global_step=step) if make is train.AdagradDAOptimizer else args
    opt = make(**args)
    if sparse:
      ids = tf.placeholder(tf.int64, [3], name="ids")
      scale = tf.placeholder(dt(d), [3, 2], name="scale")
      pairs = opt.compute_gradients(tf.reduce_sum(tf.gather(variables[0], ids) * scale), variables)
    else:
      feeds = [tf.placeholder(dt(d), x.shape) for _, x in starts]
      pairs = list(zip(feeds, variables))
    update = opt.apply_gradients(pairs, global_step=step)
    init = tf.global_variables_initializer()
    everything = tf.global_variables()
    names = [v.op.name for v in everything]
    slots = {v.op.name: {s: opt.get_slot(v, s).op.name for s in opt.get_slot_names()} for v in variables}
    steps = []
    with tf.Session(graph=graph, config=config()) as sess:
      sess.run(init)
      initial = [of(x, v).json() for x, v in zip(sess.run(everything), everything)]
      for i in range(10):
        if sparse:
          values = rnd("scale%d" % i, d, [3, 2])
          rows = [[0, 2, 0], [1, 1, 1], [3, 0, 2], [2, 2, 0], [1, 3, 3], [0, 1, 2], [3, 3, 0], [2, 0, 2], [1, 0, 1], [3, 2, 1]][i]
          sess.run(update, {ids: rows, scale: values.array})
          gradients = [{"sparse": {"values": values.json(), "indices": i64(rows).json(), "dense_shape": i64([4, 2]).json()}}]
        else:
          gs = [rnd("g%d%s" % (i, n), d, x.shape) for n, x in starts]
          sess.run(update, dict(zip(feeds, [g.array for g in gs])))
          gradients = [g.json() for g in gs]
        steps.append({"gradients": gradients, "after": [of(x, v).json()["values"] for x, v in zip(sess.run(everything), everything)]})
  return {"trained": [v.op.name for v in variables], "names": names, "slots": slots, "initial": initial, "steps": steps}


def optimizers():
  cases = []
  for name, make, args in OPTIMIZERS:
    for sparse in [False, True]:
      for d in ["float", "double"]:
        runs = []
        for resource in [False, True]:
          try:
            runs.append(dict(args_as="float", **run_optimizer(make, args, d, resource, sparse)))
          except TypeError:  # these are not converted to the variable's dtype, and must be given in it
            exact = {k: np.float64(v) for k, v in dict({"l1_regularization_strength": 0, "l2_regularization_strength": 0}, **args).items()}
            runs.append(dict(args_as="double", **run_optimizer(make, exact, d, resource, sparse)))
        heading = " ".join("%s %s" % (k.replace("_regularization_strength", ""), v) for k, v in args.items() if k != "learning_rate")
        title = "%s of %s %s gradients%s" % (name, "sparse" if sparse else "dense", d, " with " + heading if heading else "")
        same = dump(runs[0]) == dump(runs[1])
        for kinds, run in [(["ref", "resource"], runs[0])] if same else [(["ref"], runs[0]), (["resource"], runs[1])]:
          cases.append(dict({"name": title + ("" if same else " on %s variables" % kinds[0]), "optimizer": name, "args": plain(args),
                             "variables": kinds, "dtype": d, "sparse": sparse}, **run))
  write("optimizers.json", cases)


# Initial values -----------------------------------------------------------------------------------------------------


def initializers():
  i = tf.initializers
  rows = [
      ("zeros", tf.zeros_initializer, {}), ("ones", tf.ones_initializer, {}), ("constant", tf.constant_initializer, {"value": 0.3}),
      ("random_uniform", tf.random_uniform_initializer, {"minval": -0.5, "maxval": 2.0, "seed": 5}),
      ("random_normal", tf.random_normal_initializer, {"mean": 1.0, "stddev": 0.2, "seed": 6}),
      ("truncated_normal", tf.truncated_normal_initializer, {"mean": 0.5, "stddev": 0.1, "seed": 7}),
      ("glorot_uniform", tf.glorot_uniform_initializer, {"seed": 8}), ("glorot_normal", tf.glorot_normal_initializer, {"seed": 9}),
      ("he_normal", i.he_normal, {"seed": 10}), ("he_uniform", i.he_uniform, {"seed": 11}),
      ("lecun_normal", i.lecun_normal, {"seed": 12}), ("lecun_uniform", i.lecun_uniform, {"seed": 13}),
      ("variance_scaling", tf.variance_scaling_initializer, {"scale": 2.0, "mode": "fan_avg", "distribution": "uniform", "seed": 14}),
      ("variance_scaling", tf.variance_scaling_initializer, {"scale": 0.5, "mode": "fan_out", "distribution": "untruncated_normal", "seed": 15}),
      ("orthogonal", tf.orthogonal_initializer, {"seed": 16}), ("orthogonal", tf.orthogonal_initializer, {"gain": 1.5, "seed": 17}),
  ]
  cases = []
  for name, make, args in rows:
    for d in ["float", "double"]:
      for shape in [[3, 4], [5, 2], [2, 2, 2, 3], [5], []]:
        if name == "orthogonal" and len(shape) < 2:
          continue
        if name in ("zeros", "ones", "constant") and len(shape) == 4:
          continue
        with tf.Graph().as_default():
          x = make(**args)(shape, dtype=dt(d))
          with tf.Session(config=config()) as sess:
            value = of(sess.run(x), x)
        heading = "".join(" %s %s" % (k, v) for k, v in args.items())
        cases.append({"name": "%s of %s %s%s" % (name, d, shape, heading), "initializer": name, "args": plain(args),
                      "shape": shape, "dtype": d, "value": value.json()})
  write("initializers.json", cases)


# Schedules ----------------------------------------------------------------------------------------------------------


def schedules():
  rows = [
      ("exponential_decay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.9}),
      ("exponential_decay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.9, "staircase": True}),
      ("piecewise_constant", {"boundaries": [5, 20], "values": [1.0, 0.5, 0.1]}),
      ("polynomial_decay", {"learning_rate": 0.1, "decay_steps": 20}),
      ("polynomial_decay", {"learning_rate": 0.1, "decay_steps": 20, "end_learning_rate": 0.01, "power": 0.5}),
      ("polynomial_decay", {"learning_rate": 0.1, "decay_steps": 20, "end_learning_rate": 0.01, "power": 2.0, "cycle": True}),
      ("natural_exp_decay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
      ("natural_exp_decay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": True}),
      ("inverse_time_decay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}),
      ("inverse_time_decay", {"learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": True}),
      ("cosine_decay", {"learning_rate": 0.1, "decay_steps": 20}),
      ("cosine_decay", {"learning_rate": 0.1, "decay_steps": 20, "alpha": 0.1}),
      ("cosine_decay_restarts", {"learning_rate": 0.1, "first_decay_steps": 10}),
      ("cosine_decay_restarts", {"learning_rate": 0.1, "first_decay_steps": 10, "t_mul": 1.5, "m_mul": 0.5, "alpha": 0.05}),
      ("cosine_decay_restarts", {"learning_rate": 0.1, "first_decay_steps": 10, "t_mul": 1.0, "m_mul": 0.8}),
      ("linear_cosine_decay", {"learning_rate": 0.1, "decay_steps": 20}),
      ("linear_cosine_decay", {"learning_rate": 0.1, "decay_steps": 20, "num_periods": 2.0, "alpha": 0.1, "beta": 0.01}),
  ]
  at = [0, 1, 4, 5, 6, 9, 10, 11, 19, 20, 21, 25, 40, 100]
  cases = []
  for name, args in rows:
    for d in ["int64", "int32"]:
      if d == "int32" and len(args) > 3:
        continue
      with tf.Graph().as_default():
        step = tf.placeholder(dt(d), [])
        fn = getattr(train, name)
        key = "x" if name == "piecewise_constant" else "global_step"
        rate = fn(**dict(args, **{key: step}))
        with tf.Session(config=config()) as sess:
          values = [sess.run(rate, {step: i}) for i in at]
      heading = "".join(" %s %s" % (k, v) for k, v in args.items() if k != "learning_rate")
      cases.append({"name": "%s of an %s step%s" % (name, d, heading), "schedule": name, "args": {k: plain({k: v})[k] for k, v in args.items()},
                    "step_dtype": d, "steps": at, "values": [real(v, True) for v in values]})
  write("schedules.json", cases)


# Clipping -----------------------------------------------------------------------------------------------------------


def clip():
  cases = []

  def case(name, op, args, xs, build):
    """`build` turns the inputs into outputs; the gradient is that of all outputs under random dy."""
    with tf.Graph().as_default() as graph:
      inputs = [tf.constant(x.array) for x in xs]
      outs = build(inputs)
      with tf.Session(graph=graph, config=config()) as sess:
        outputs = [of(v, o) for v, o in zip(sess.run(outs), outs)]
        dys = [rnd(name + "dy%d" % i, o.dtype, o.shape) for i, o in enumerate(outputs)]
        grads = tf.gradients(outs, inputs, [tf.constant(g.array) for g in dys])
        dx = [None if g is None else of(sess.run(g), x).json() for g, x in zip(grads, inputs)]
    cases.append({"name": name, "clip": op, "args": args, "inputs": [x.json() for x in xs], "outputs": [o.json() for o in outputs],
                  "grad": {"dy": [y.json() for y in dys], "dx": dx}})

  for d in ["float", "double"]:
    x = t(d, [[2.23, -0.5, -2.06], [0.3, 1.5, -1]])
    small = t(d, [[0.1, -0.2, 0.3]])
    case("clip_by_value of %s" % d, "clip_by_value", {"min": -1, "max": 1.5}, [x], lambda v: [tf.clip_by_value(v[0], -1, 1.5)])
    case("clip_by_norm of %s" % d, "clip_by_norm", {"norm": 1.5}, [x], lambda v: [tf.clip_by_norm(v[0], 1.5)])
    case("clip_by_norm of %s below the norm" % d, "clip_by_norm", {"norm": 1.5}, [small], lambda v: [tf.clip_by_norm(v[0], 1.5)])
    case("clip_by_norm of %s by rows" % d, "clip_by_norm", {"norm": 1.5, "axes": [1]}, [x], lambda v: [tf.clip_by_norm(v[0], 1.5, axes=[1])])
    case("clip_by_norm of %s zeros" % d, "clip_by_norm", {"norm": 1.5}, [t(d, [0, 0])], lambda v: [tf.clip_by_norm(v[0], 1.5)])
    if d == "float":  # TensorFlow's does not take double
      case("clip_by_average_norm of %s" % d, "clip_by_average_norm", {"norm": 0.2}, [x], lambda v: [tf.clip_by_average_norm(v[0], 0.2)])
      case("clip_by_average_norm of %s below the norm" % d, "clip_by_average_norm", {"norm": 2}, [small], lambda v: [tf.clip_by_average_norm(v[0], 2)])

    def by_global(c):
      def build(v):
        outs, norm = tf.clip_by_global_norm(v, c)
        return outs + [norm]
      return build
    y = rnd("clip2" + d, d, [4], -3, 3)
    case("clip_by_global_norm of %s, the norm last" % d, "clip_by_global_norm", {"norm": 2}, [x, y], by_global(2.0))
    case("clip_by_global_norm of %s below the norm" % d, "clip_by_global_norm", {"norm": 100}, [x, y], by_global(100.0))
    case("clip_by_global_norm of one %s" % d, "clip_by_global_norm", {"norm": 1}, [y], by_global(1.0))
    case("global_norm of %s" % d, "global_norm", {}, [x, y], lambda v: [tf.global_norm(v)])
  write("clip.json", cases)


# Moving averages ----------------------------------------------------------------------------------------------------


def ema():
  cases = []
  for d in ["float", "double"]:
    for args in [{"decay": 0.9}, {"decay": 0.99, "num_updates": True}, {"decay": 0.9, "zero_debias": True}]:
      for kind in ["ref", "resource", "tensor"]:
        if kind == "tensor" and d == "double":
          continue
        with tf.Graph().as_default() as graph:
          given = dict(args)
          updates = tf.placeholder(tf.int64, [], name="updates")
          if "num_updates" in given:
            given["num_updates"] = updates
          x = tf.placeholder(dt(d), [2], name="x")
          average = train.ExponentialMovingAverage(**given)
          if kind == "tensor":
            source, put = tf.identity(x, name="loss"), tf.no_op()
            update = average.apply([source])
          else:
            source = tf.Variable(t(d, [1, -1]).array, name="v", use_resource=kind == "resource")
            put = tf.assign(source, x).op
            with tf.control_dependencies([put]):
              update = average.apply([source])
          shadow = average.average(source)
          init = tf.global_variables_initializer()
          everything = tf.global_variables()
          steps = []
          with tf.Session(graph=graph, config=config()) as sess:
            sess.run(init)
            initial = [of(v, y).json() for v, y in zip(sess.run(everything), everything)]
            for i in range(6):
              value = rnd("ema%d" % i, d, [2])
              sess.run(update, {x: value.array, updates: i})
              steps.append({"value": value.json(), "num_updates": i if "num_updates" in args else None, "average": of(sess.run(shadow), shadow).json(),
                            "after": [of(v, y).json() for v, y in zip(sess.run(everything), everything)]})
          heading = "".join(" %s %s" % (k, v) for k, v in args.items())
          cases.append({"name": "an average of a %s %s%s" % (d, kind if kind == "tensor" else kind + " variable", heading), "args": plain(args), "of": kind, "dtype": d,
                        "names": [v.op.name for v in everything], "average_name": average.average_name(source), "initial": initial, "steps": steps})
  write("ema.json", cases)


# A network ----------------------------------------------------------------------------------------------------------


def sawtooth(count, a, c, m):
  """Element i is ((i * a + c) mod m) / m - 0.5: numbers any language makes alike."""
  i = np.arange(count, dtype=np.int64)
  return ((i * a + c) % m) / float(m) - 0.5


def mlp():
  hidden, batch, rate = 100, 100, 0.01
  cases = []
  for resource in [False, True]:
    with tf.Graph().as_default() as graph:
      step = tf.Variable(0, name="global_step", trainable=False, use_resource=resource)
      start = {
          "hid_w": (sawtooth(784 * hidden, 7919, 13, 10007) * 2 / 28.0).astype(np.float32).reshape([784, hidden]), "hid_b": np.zeros([hidden], np.float32),
          "sm_w": (sawtooth(hidden * 10, 104729, 29, 1009) * 2 / 10.0).astype(np.float32).reshape([hidden, 10]), "sm_b": np.zeros([10], np.float32)}
      v = {k: tf.Variable(x, name=k, use_resource=resource) for k, x in start.items()}
      x = tf.placeholder(tf.float32, [None, 784])
      y_ = tf.placeholder(tf.float32, [None, 10])
      hid = tf.nn.relu(tf.nn.xw_plus_b(x, v["hid_w"], v["hid_b"]))
      y = tf.nn.softmax(tf.nn.xw_plus_b(hid, v["sm_w"], v["sm_b"]))
      loss = -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
      update = train.AdamOptimizer(rate).minimize(loss, global_step=step)
      steps = []
      with tf.Session(graph=graph, config=config()) as sess:
        sess.run(tf.global_variables_initializer())
        for i in range(5):
          images = (sawtooth(batch * 784, 31337, 1000 * i + 7, 65537) + 0.5).astype(np.float32).reshape([batch, 784])
          labels = np.eye(10, dtype=np.float32)[(np.arange(batch) * 7 + i) % 10]
          l, _ = sess.run([loss, update], {x: images, y_: labels})
          b1, b2, w = sess.run([v["hid_b"], v["sm_b"], v["sm_w"]])
          steps.append({"loss": real(l, True), "sm_b": f32(b2).json(), "hid_b_first": f32(b1[:8]).json(), "sm_w_first": f32(w.ravel()[:8]).json()})
      cases.append({"name": "the MNIST network on %s variables" % ("resource" if resource else "ref"), "variables": "resource" if resource else "ref",
                    "hidden": hidden, "batch": batch, "learning_rate": real(rate, False), "optimizer": "Adam", "steps": steps})
  write("mlp.json", cases, formula={
      "saw": "saw(i, a, c, m) = ((i * a + c) mod m) / m - 0.5, in 64-bit integers and then doubles; rounded to float at the end",
      "hid_w": "[784, hidden], element i = saw(i, 7919, 13, 10007) * 2 / 28", "sm_w": "[hidden, 10], element i = saw(i, 104729, 29, 1009) * 2 / 10",
      "hid_b, sm_b": "zero", "images": "[batch, 784] at step s, element i = saw(i, 31337, 1000 * s + 7, 65537) + 0.5",
      "labels": "[batch, 10] at step s, row r is one-hot at (r * 7 + s) mod 10",
      "network": "hid = relu(x hid_w + hid_b); y = softmax(hid sm_w + sm_b); loss = -sum(labels * log(clip(y, 1e-10, 1))), before the update"})


if __name__ == "__main__":
  optimizers()
  initializers()
  schedules()
  clip()
  ema()
  mlp()
