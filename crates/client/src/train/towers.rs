//! Towers: copies of a model within one graph, each on a device of its own, trained as one.

use crate::{Gradient, Graph, IndexedSlices, Output, Variable, concat};
use tensor::{Result, invalid};

/// What [`compute_gradients`](crate::Optimizer::compute_gradients) gives for one tower.
type Tower = [(Option<Gradient>, Variable)];

/// The mean of the towers' gradients, variable by variable: what an optimizer applies once for all of them.
///
/// A tower that does not depend on a variable counts as zeros; a variable on which none depends is left out. Gradients that
/// are rows in every tower stay rows.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::average_gradients;
///
/// let g = Graph::new();
/// let w = g.variable("w", 1.0f32);
/// let optimizer = GradientDescent::new(0.1);
/// let towers: Vec<_> = [2.0f32, 4.0]
///     .into_iter()
///     .enumerate()
///     .map(|(i, slope)| g.device(format!("/cpu:{i}"), || optimizer.compute_gradients(&(&w * slope), &[w.clone()])))
///     .collect();
/// let train = optimizer.apply_gradients(&average_gradients(&towers), None);
///
/// let init = g.initialize_all();
/// # let options = ferroflow::SessionOptions { allow_soft_placement: true, ..Default::default() };
/// # let session = Session::connect_with("", &g, options)?;
/// session.run(&init)?;
/// session.run(&train)?;
/// assert!((session.run(&w)?.item::<f32>()? - 0.7).abs() < 1e-6); // 1 - 0.1 * (2 + 4) / 2
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[track_caller]
pub fn average_gradients<T: AsRef<Tower>>(towers: &[T]) -> Vec<(Gradient, Variable)> {
    let Some((_, first)) = towers.iter().find_map(|tower| tower.as_ref().first()) else { return Vec::new() };
    let graph = first.graph().clone();
    graph.here(|| {
        if graph.kept(check(towers)).is_none() {
            return Vec::new();
        }
        graph.name_scope("average_gradients", || {
            let mean_of = |(i, (_, variable)): (usize, &(Option<Gradient>, Variable))| {
                let gradients: Vec<&Gradient> = towers.iter().filter_map(|t| t.as_ref()[i].0.as_ref()).collect();
                Some((mean(&graph, &gradients, towers.len())?, variable.clone()))
            };
            towers[0].as_ref().iter().enumerate().filter_map(mean_of).collect()
        })
    })
}

/// All towers are asked about the same variables, in the same order.
fn check<T: AsRef<Tower>>(towers: &[T]) -> Result<()> {
    let names = |tower: &T| tower.as_ref().iter().map(|(_, variable)| variable.name()).collect::<Vec<_>>();
    let wanted = names(&towers[0]);
    for (i, found) in towers.iter().map(names).enumerate() {
        if found != wanted {
            let [wanted, found] = [wanted, found].map(|names| names.join(", "));
            return Err(invalid!("tower {i} has gradients by {found}; wanted {wanted}, as tower 0 has them"));
        }
    }
    Ok(())
}

fn mean(graph: &Graph, gradients: &[&Gradient], count: usize) -> Option<Gradient> {
    let count = count as f64;
    let rows: Option<Vec<&IndexedSlices>> = gradients
        .iter()
        .map(|gradient| match gradient {
            Gradient::Sparse(rows) => Some(rows),
            Gradient::Dense(_) => None,
        })
        .collect();
    match (gradients, rows) {
        ([], _) => None,
        ([first, ..], None) => {
            let dense: Vec<Output> = gradients.iter().map(|gradient| gradient.dense()).collect();
            Some(Gradient::Dense(sum(graph, &dense) / scalar(graph, first.values(), count)))
        }
        ([first, ..], Some(rows)) => {
            let values: Vec<&Output> = rows.iter().map(|rows| &rows.values).collect();
            let indices: Vec<&Output> = rows.iter().map(|rows| &rows.indices).collect();
            Some(Gradient::Sparse(IndexedSlices {
                values: concat(&values, 0) / scalar(graph, first.values(), count),
                indices: concat(&indices, 0),
                dense_shape: rows[0].dense_shape.clone(),
            }))
        }
    }
}

fn sum(graph: &Graph, parts: &[Output]) -> Output {
    let ids: Option<Vec<framework::Output>> = parts.iter().map(|part| graph.own_one(part)).collect();
    match ids {
        Some(ids) => graph.output([], |s, []| s.node("AddN").inputs(&ids).output()),
        None => Output::void(graph),
    }
}

fn scalar(graph: &Graph, like: &Output, value: f64) -> Output {
    graph.output([], |s, []| s.constant_of(like.dtype(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    /// The averages of what each tower's loss gives, as dense values.
    fn averages(losses: impl Fn(&Graph, &Variable, &Variable) -> Vec<Output>) -> Vec<Vec<f32>> {
        let g = Graph::new();
        let (w, table) = (g.variable("w", [1.0f32, 2.0]), g.variable("table", [[1.0f32], [2.0], [3.0]]));
        let optimizer = GradientDescent::new(0.1);
        let variables = [w.clone(), table.clone()];
        let towers: Vec<_> =
            losses(&g, &w, &table).iter().map(|loss| optimizer.compute_gradients(loss, &variables)).collect();
        let found: Vec<Output> = average_gradients(&towers).iter().map(|(gradient, _)| gradient.dense()).collect();
        let init = g.initialize_all();
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        found.iter().map(|output| session.run(output).unwrap().into_vec().unwrap()).collect()
    }

    #[test]
    fn means_are_over_all_towers() {
        let both = averages(|_, w, _| vec![(w * 2.0).sum(), w.square().sum()]);
        assert_eq!(both, [[2.0, 3.0]], "of a variable that no tower depends on there is none");
        let one = averages(|_, w, table| vec![(w * 2.0).sum(), table.sum()]);
        assert_eq!(one, [vec![1.0, 1.0], vec![0.5, 0.5, 0.5]], "a tower without a gradient counts as zeros");
    }

    #[test]
    fn rows_stay_rows_where_all_are() {
        let rows = |g: &Graph, table: &Variable, ids: [i32; 2]| table.embedding_lookup(&g.constant(ids)).sum();
        let sparse = averages(|g, _, table| vec![rows(g, table, [0, 1]), rows(g, table, [1, 1])]);
        assert_eq!(sparse, [[0.5, 1.5, 0.0]]);
        let mixed = averages(|g, _, table| vec![rows(g, table, [0, 1]), (table.as_ref() * 3.0).sum()]);
        assert_eq!(mixed, [[2.0, 2.0, 1.5]]);
    }

    #[test]
    fn towers_that_do_not_agree_are_a_mistake() {
        let g = Graph::new();
        let (a, b) = (g.variable("a", 1.0f32), g.variable("b", 1.0f32));
        let loss = &a * &b;
        let optimizer = GradientDescent::new(0.1);
        let towers =
            [optimizer.compute_gradients(&loss, std::slice::from_ref(&a)), optimizer.compute_gradients(&loss, &[b])];
        assert!(average_gradients(&towers).is_empty());
        let message = g.check().unwrap_err().message;
        assert!(message.contains("tower 1 has gradients by b; wanted a"), "{message}");
        assert!(average_gradients::<Vec<_>>(&[]).is_empty());
    }
}
