//! The backward walk: paths are added up, ends are respected, branches are followed.

use crate::support::{assert_error, registry, run};
use framework::graph::text;
use framework::{GradValue, Output, Scope, gated_gradients, gradients};
use tensor::{Code, Tensor};

struct Built {
    scope: Scope,
}

impl Built {
    #[track_caller]
    fn new(notation: &str) -> Built {
        Built { scope: Scope::on(text::parse(notation, &registry()).unwrap(), registry()) }
    }

    #[track_caller]
    fn output(&self, name: &str) -> Output {
        self.scope.with_graph(|g| g.find_output(name)).unwrap_or_else(|| panic!("no {name}"))
    }

    #[track_caller]
    fn gradients(&self, y: &str, xs: &[&str], stop: &[&str]) -> Vec<Option<GradValue>> {
        let outputs = |names: &[&str]| names.iter().map(|n| self.output(n)).collect::<Vec<_>>();
        gradients(&self.scope, &outputs(&[y]), &outputs(xs), &[], &outputs(stop)).unwrap()
    }

    #[track_caller]
    fn value(&self, of: Option<GradValue>, feeds: &[(&str, Tensor)]) -> Tensor {
        let of = of.expect("a gradient").dense(&self.scope).unwrap();
        let feeds: Vec<(Output, Tensor)> =
            feeds.iter().map(|(name, value)| (self.output(name), value.clone())).collect();
        self.scope.with_graph(|g| run(g, &feeds, &[of])).unwrap().remove(0)
    }
}

#[test]
fn several_paths_are_added_up() {
    // y = x² + 3x, so the slope at 2 is 7.
    let built = Built::new(
        "x = Placeholder {dtype: float, shape: shape[]}
         three = Const {dtype: float, value: float[] 3}
         square = Mul(x, x)
         triple = Mul(x, three)
         y = Add(square, triple)",
    );
    let dx = built.gradients("y", &["x"], &[])[0];
    assert_eq!(built.value(dx, &[("x", Tensor::from(2.0f32))]), Tensor::from(7.0f32));
}

#[test]
fn what_only_the_loss_needs_is_not_computed_for_its_gradients() {
    let built = Built::new(
        "x = Placeholder {dtype: float, shape: shape[2]}
         square = Square(x)
         all = Const {dtype: int32, value: int32[1] [0]}
         loss = Sum(square, all)",
    );
    let dx = built.gradients("loss", &["x"], &[])[0];
    let GradValue::Dense(dx) = dx.unwrap() else { panic!("{dx:?} is not a tensor") };
    let mut seen = vec![dx.node];
    built.scope.with_graph(|graph| {
        let mut next = 0;
        while next < seen.len() {
            seen.extend(framework::graph::sources(graph.node(seen[next])));
            next += 1;
        }
    });
    for unneeded in ["loss", "square"] {
        assert!(!seen.contains(&built.output(unneeded).node), "{unneeded}");
    }
}

#[test]
fn the_gradient_of_what_is_not_connected_is_none() {
    let built = Built::new(
        "x = Placeholder {dtype: float, shape: shape[]}
         other = Placeholder {dtype: float, shape: shape[]}
         stopped = StopGradient(x)
         y = Neg(other)
         z = Add(y, stopped)",
    );
    let found = built.gradients("z", &["x", "other"], &[]);
    assert!(found[0].is_none());
    assert!(found[1].is_some());
}

#[test]
fn what_is_to_be_stopped_at_counts_as_a_constant() {
    // z = a + b with a = 2x and b = 3a: stopping at a leaves da = 1 + 3, and x none.
    let built = Built::new(
        "x = Placeholder {dtype: float, shape: shape[]}
         two = Const {dtype: float, value: float[] 2}
         three = Const {dtype: float, value: float[] 3}
         a = Mul(x, two)
         b = Mul(a, three)
         z = Add(a, b)",
    );
    let found = built.gradients("z", &["x", "a"], &["a"]);
    assert!(found[0].is_none());
    assert_eq!(built.value(found[1], &[("x", Tensor::from(5.0f32))]), Tensor::from(4.0f32));
}

#[test]
fn a_tensor_is_its_own_gradient_of_one() {
    let built = Built::new("x = Placeholder {dtype: float, shape: shape[2]}");
    let dx = built.gradients("x", &["x"], &[])[0];
    assert_eq!(built.value(dx, &[("x", Tensor::from([5.0f32, 6.0]))]), Tensor::from([1.0f32, 1.0]));
}

#[test]
fn rows_that_were_gathered_twice_are_added_up() {
    let built = Built::new(
        "params = Placeholder {dtype: float, shape: shape[3,2]}
         axis = Const {dtype: int32, value: int32[] 0}
         first = Const {dtype: int32, value: int32[2] [2 0]}
         second = Const {dtype: int32, value: int32[1] [2]}
         a = GatherV2(params, first, axis)
         b = GatherV2(params, second, axis)
         all = Const {dtype: int32, value: int32[2] [0 1]}
         sum_a = Sum(a, all)
         sum_b = Sum(b, all)
         y = Add(sum_a, sum_b)",
    );
    let grad = built.gradients("y", &["params"], &[])[0];
    assert!(matches!(grad, Some(GradValue::Sparse(_))), "{grad:?}");
    let dense = grad.unwrap().dense(&built.scope).unwrap();
    let params = (built.output("params"), Tensor::from([[0.0f32; 2]; 3]));
    let value = built.scope.with_graph(|g| run(g, &[params], &[dense])).unwrap().remove(0);
    assert_eq!(value, Tensor::from([[1.0f32, 1.0], [0.0, 0.0], [2.0, 2.0]]));
}

/// The gradient of rows 2, 0 and 2 of some `y` by `x`, where `y` is made of `x`, of shape [3,2]: the rows that TensorFlow's
/// gradient has, and their numbers there; `None` where it is a whole tensor.
#[track_caller]
fn check_rows(y: &str, rows: Option<(&[[f32; 2]], &[i32])>, whole: [[f32; 2]; 3]) {
    for taken in [true, false] {
        let built = Built::new(&format!(
            "p = Placeholder {{dtype: bool, shape: shape[]}}
             x = Placeholder {{dtype: float, shape: shape[3,2]}}
             {y}
             axis = Const {{dtype: int32, value: int32[] 0}}
             indices = Const {{dtype: int32, value: int32[3] [2 0 2]}}
             z = GatherV2(y, indices, axis)"
        ));
        let feeds = [("x", Tensor::from([[0.0f32, 1.0], [2.0, 3.0], [4.0, 5.0]])), ("p", Tensor::from(taken))];
        let grad = built.gradients("z", &["x"], &[])[0];
        match (grad.expect("a gradient"), rows) {
            (GradValue::Sparse(found), Some((values, indices))) => {
                let want = Tensor::from_vec([values.len(), 2], values.concat()).unwrap();
                assert_eq!(built.value(Some(found.values.into()), &feeds), want, "{y}");
                assert_eq!(built.value(Some(found.indices.into()), &feeds), Tensor::from(indices.to_vec()), "{y}");
            }
            (GradValue::Dense(_), None) => {}
            (found, _) => panic!("{y}: {found:?}"),
        }
        assert_eq!(built.value(grad, &feeds), Tensor::from(whole), "{y}");
    }
}

#[test]
fn rows_stay_rows_where_they_do_in_tensorflow() {
    let once: [[f32; 2]; 3] = [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]];
    let (minus, twice) = (once.map(|row| row.map(|v| 0.0 - v)), once.map(|row| row.map(|v| 2.0 * v)));
    let (ones, minus_ones): ([[f32; 2]; 6], [[f32; 2]; 3]) = ([[1.0; 2]; 6], [[-1.0; 2]; 3]);
    let plain: Option<(&[[f32; 2]], &[i32])> = Some((&ones[..3], &[2, 0, 2]));
    let negated: Option<(&[[f32; 2]], &[i32])> = Some((&minus_ones, &[2, 0, 2]));
    let doubled: Option<(&[[f32; 2]], &[i32])> = Some((&ones, &[2, 0, 2, 2, 0, 2]));
    check_rows("y = Identity(x)", plain, once);
    check_rows("y = Neg(x)", negated, minus);
    check_rows("y = Cast(x) {DstT: double}", plain, once);
    check_rows("y = PlaceholderWithDefault(x) {shape: shape[3,2]}", plain, once);
    check_rows("y = AddN(x, x)", doubled, twice);
    check_rows("c = Const {dtype: float, value: float[] 1}\ny = AddV2(x, c)", plain, once);
    check_rows("c = Const {dtype: float, value: float[3,2] [[1 1] [1 1] [1 1]]}\ny = Sub(c, x)", negated, minus);
    check_rows("c = Const {dtype: float, value: float[] 2}\ny = Mul(x, c)", None, twice);
    check_rows("b = Const {dtype: float, value: float[2] [1 2]}\ny = BiasAdd(x, b)", plain, once);
    check_rows("s = Switch(x, p)\ny = Merge(s, s:1)", plain, once);
    let second: Option<(&[[f32; 2]], &[i32])> = Some((&ones[..2], &[1, 1]));
    check_rows(
        "zeros = Const {dtype: float, value: float[1,2] [[0 0]]}
         along = Const {dtype: int32, value: int32[] 0}
         y = ConcatV2(zeros, x, x, along)",
        second,
        [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]],
    );
    check_rows("along = Const {dtype: int32, value: int32[] -1}\ny = ConcatV2(x, x, along)", doubled, twice);
}

#[test]
fn rows_of_one_branch_meet_the_whole_of_the_other() {
    // Rows 2, 0 and 2 of x if p, else 3x or nothing of it.
    let built = Built::new(
        "p = Placeholder {dtype: bool, shape: shape[]}
         x = Placeholder {dtype: float, shape: shape[3,2]}
         s = Switch(x, p)
         axis = Const {dtype: int32, value: int32[] 0}
         indices = Const {dtype: int64, value: int64[3] [2 0 2]}
         three = Const {dtype: float, value: float[] 3}
         all = Const {dtype: int32, value: int32[2] [0 1]}
         rows = GatherV2(s:1, indices, axis)
         yes = Sum(rows, all)
         triple = Mul(s, three)
         no = Sum(triple, all)
         y = Merge(no, yes)
         other = Switch(three, p)
         z = Merge(other, yes)",
    );
    for (y, otherwise) in [("y", 3.0f32), ("z", 0.0)] {
        let grad = built.gradients(y, &["x"], &[])[0];
        assert!(matches!(grad, Some(GradValue::Sparse(_))), "{grad:?}");
        for (taken, want) in [(true, [[1.0f32, 1.0], [0.0, 0.0], [2.0, 2.0]]), (false, [[otherwise; 2]; 3])] {
            let feeds = [("x", Tensor::from([[0.0f32; 2]; 3])), ("p", Tensor::from(taken))];
            assert_eq!(built.value(grad, &feeds), Tensor::from(want), "{y} {taken}");
        }
    }
}

#[test]
fn the_branch_that_was_taken_has_the_gradient() {
    // y = p ? x² : -x
    let built = Built::new(
        "p = Placeholder {dtype: bool, shape: shape[]}
         x = Placeholder {dtype: float, shape: shape[]}
         switch = Switch(x, p)
         no = Neg(switch)
         yes = Square(switch:1)
         y = Merge(no, yes)",
    );
    let dx = built.gradients("y", &["x"], &[])[0];
    for (taken, slope) in [(true, 6.0f32), (false, -1.0)] {
        let feeds = [("x", Tensor::from(3.0f32)), ("p", Tensor::from(taken))];
        assert_eq!(built.value(dx, &feeds), Tensor::from(slope));
    }
}

#[test]
fn an_optimizer_gets_no_gradient_before_those_beside_it() {
    // The names and edges are those of TensorFlow's own optimizers; it computes the gradient of x as well.
    let built = Built::new(
        "x = Placeholder {dtype: float, shape: shape[2,2]}
         w = Placeholder {dtype: float, shape: shape[2,2]}
         v = Placeholder {dtype: float, shape: shape[2,2]}
         h = MatMul(x, w)
         y = MatMul(h, v)",
    );
    let (y, w, v) = (built.output("y"), built.output("w"), built.output("v"));
    let found = gated_gradients(&built.scope, &[y], &[w, v]).unwrap();
    let printed = built.scope.with_graph(text::print);
    let gate = "gradients/y_grad/tuple";
    for line in [
        format!("{gate}/group_deps = NoOp(^gradients/y_grad/MatMul, ^gradients/y_grad/MatMul_1)"),
        format!("{gate}/control_dependency = Identity(gradients/y_grad/MatMul, ^{gate}/group_deps)"),
        format!("{gate}/control_dependency_1 = Identity(gradients/y_grad/MatMul_1, ^{gate}/group_deps)"),
    ] {
        assert!(printed.lines().any(|l| l.starts_with(&line)), "{line}\nis not in\n{printed}");
    }
    assert!(!printed.contains("h_grad/tuple"), "only one gradient of h is wanted:\n{printed}");
    let names: Vec<String> = found.iter().map(|g| name_of(&built, g)).collect();
    assert_eq!(names, ["gradients/h_grad/MatMul", "gradients/y_grad/tuple/control_dependency_1"]);
}

fn name_of(built: &Built, grad: &Option<GradValue>) -> String {
    built.scope.node_name(grad.expect("a gradient").dense(&built.scope).unwrap().node)
}

#[test]
fn gates_let_the_branch_through_that_was_taken() {
    // y = p ? x·w : x - w
    let built = Built::new(
        "p = Placeholder {dtype: bool, shape: shape[]}
         x = Placeholder {dtype: float, shape: shape[]}
         w = Placeholder {dtype: float, shape: shape[]}
         xs = Switch(x, p)
         ws = Switch(w, p)
         no = Sub(xs, ws)
         yes = Mul(xs:1, ws:1)
         y = Merge(no, yes)",
    );
    let (y, x, w) = (built.output("y"), built.output("x"), built.output("w"));
    let found = gated_gradients(&built.scope, &[y], &[x, w]).unwrap();
    for (taken, slopes) in [(true, [5.0f32, 3.0]), (false, [1.0, -1.0])] {
        let feeds = [("x", Tensor::from(3.0f32)), ("w", Tensor::from(5.0f32)), ("p", Tensor::from(taken))];
        for (grad, slope) in found.iter().zip(slopes) {
            assert_eq!(built.value(*grad, &feeds), Tensor::from(slope));
        }
    }
}

#[test]
fn integers_have_no_gradient() {
    let built = Built::new("x = Placeholder {dtype: int32, shape: shape[]}\ny = Neg(x)");
    let (x, y) = (built.output("x"), built.output("y"));
    assert_error(gradients(&built.scope, &[y], &[x], &[], &[]), Code::InvalidArgument, &["y", "int32"]);
}
