"""Functions of a graph's library, called by nodes: functional."""
from golden import *
from tensorflow.python.framework import function

raw = tf.raw_ops


def main():
  f = File(__file__, "functional.json")

  @function.Defun(tf.float32, tf.float32, func_name="twice_and_sum")
  def defun(x, y):
    return 2 * x, x + y

  @tf.function
  def square_sum(x, y):
    return x * x + y

  @tf.function
  def nested(x):
    return square_sum(x, x) - square_sum(x, 1.0)

  def feed(*shape):
    return tf.placeholder(tf.float32, list(shape), name="x")

  def plain():
    a, b = defun(feed(2), tf.constant([10., 20.]))
    tf.identity(a, name="a")
    tf.identity(b, name="b")
  x = {"x": f32([3, 4])}
  f.graph("a node that is a function", plain, [{"fetches": ["a", "b"], "feeds": x}] * 2, whole=True)
  f.graph("a call of a function", lambda: tf.identity(square_sum(feed(2), tf.constant([1., 2.])), name="y"), [{"fetches": ["y"], "feeds": x}], whole=True)
  f.graph("a call of a function that calls another twice", lambda: tf.identity(nested(feed(2)), name="y"), [{"fetches": ["y"], "feeds": x}], whole=True)

  def assigns():
    v = tf.get_variable("v", [], tf.float32, tf.zeros_initializer(), use_resource=True)

    @tf.function
    def add(x):
      v.assign_add(x)
      return v.read_value()
    tf.identity(add(tf.constant(2.5)), name="y")
    tf.group(v.initializer, name="init")
  f.graph("a call that changes a variable", assigns, [{"targets": ["init"]}, {"fetches": ["y"]}, {"fetches": ["y"]}], whole=True)

  def fails():
    @tf.function
    def check(x):
      with tf.control_dependencies([tf.Assert(x > 0, [x])]):
        return tf.identity(x)
    tf.identity(check(tf.placeholder(tf.float32, [], name="x")), name="y")
  f.graph("a call that fails", fails, [{"fetches": ["y"], "feeds": {"x": f32(1)}}, {"fetches": ["y"], "feeds": {"x": f32(-1)}, "error": True}], whole=True)

  def branch(dtype):
    def build():
      c = tf.placeholder(dtype, [] if dtype != tf.int64 else None, name="c")

      @function.Defun(tf.float32, func_name="then")
      def then(x):
        return x + 1

      @function.Defun(tf.float32, func_name="other")
      def other(x):
        return x * 10
      y = raw.StatelessIf(cond=c, input=[feed(2)], Tout=[tf.float32], then_branch=then, else_branch=other)
      tf.identity(y[0], name="y")
    return build
  for dtype, values in [(tf.bool, [b(True), b(False)]), (tf.int32, [i32(5), i32(0)]), (tf.float32, [f32(0.5), f32(0)]), (tf.string, [s("a"), s("")]),
                        (tf.int64, [i64([0, 0]), i64([], [0])])]:
    f.graph("StatelessIf on %s" % dtype.name, branch(dtype), [{"fetches": ["y"], "feeds": {"c": v, "x": f32([3, 4])}} for v in values], whole=True)

  def case():
    @function.Defun(tf.float32, func_name="first")
    def first(x):
      return x + 1

    @function.Defun(tf.float32, func_name="second")
    def second(x):
      return x * 10
    y = raw.StatelessCase(branch_index=tf.placeholder(tf.int32, [], name="c"), input=[feed(2)], Tout=[tf.float32], branches=[first, second])
    tf.identity(y[0], name="y")
  f.graph("StatelessCase", case, [{"fetches": ["y"], "feeds": {"c": i32(v), "x": f32([3, 4])}} for v in [0, 1, 2, -1]], whole=True)

  def loop():
    @function.Defun(tf.int32, tf.float32, func_name="goes_on")
    def goes_on(i, x):
      return i < 5

    @function.Defun(tf.int32, tf.float32, func_name="step")
    def step(i, x):
      return i + 1, x * 2
    y = raw.StatelessWhile(input=[tf.placeholder(tf.int32, [], name="c"), feed(2)], cond=goes_on, body=step)
    tf.identity(y[0], name="i")
    tf.identity(y[1], name="y")
  f.graph("StatelessWhile", loop, [{"fetches": ["i", "y"], "feeds": {"c": i32(v), "x": f32([3, 4])}} for v in [0, 3, 9]], whole=True)
  f.write()


if __name__ == "__main__":
  main()
