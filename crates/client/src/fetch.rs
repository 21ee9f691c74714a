//! What a run may be asked for, and what it gives back: one `Output` gives one `Tensor`, a tuple gives a tuple, an
//! `Operation` gives `()`.

use crate::{Operation, Output, Variable};
use tensor::{Error, Result, Tensor, internal};

/// Something that `Session::run` can be asked for.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let (a, b) = (g.constant(2.0f32), g.constant(3.0f32));
/// let session = Session::new(&g)?;
/// let (sum, both) = session.run((&a + &b, [&a, &b]))?;
/// assert_eq!(sum.item::<f32>()?, 5.0);
/// assert_eq!(both.len(), 2);
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub trait Fetch {
    /// What a run gives for it.
    type Values;

    /// Adds what must be computed to the list.
    fn collect(&self, into: &mut FetchList);

    /// Takes its own values from those of the whole list, which come in the list's order.
    fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<Self::Values>;
}

/// What a run computes, by name.
#[derive(Debug, Default)]
pub struct FetchList {
    /// Outputs to give back: `node:index`.
    pub outputs: Vec<String>,
    /// Nodes to run: `node`.
    pub targets: Vec<String>,
    /// The mistake that left something asked for unbuilt.
    pub error: Option<Error>,
}

impl FetchList {
    /// Everything that must be computed for a fetch; an error if some of it could not be built.
    pub fn of(fetch: &impl Fetch) -> Result<FetchList> {
        let mut list = FetchList::default();
        fetch.collect(&mut list);
        match list.error.take() {
            Some(error) => Err(error),
            None => Ok(list),
        }
    }
}

impl Fetch for Output {
    type Values = Tensor;
    fn collect(&self, into: &mut FetchList) {
        match self.full_name() {
            Ok(name) => into.outputs.push(name),
            Err(error) => into.error = into.error.take().or(Some(error)),
        }
    }
    fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<Tensor> {
        results.next().ok_or_else(|| internal!("the run gave fewer values than it was asked for"))
    }
}

impl Fetch for Variable {
    type Values = Tensor;
    fn collect(&self, into: &mut FetchList) {
        Output::collect(self, into);
    }
    fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<Tensor> {
        Output::values(self, results)
    }
}

impl Fetch for Operation {
    type Values = ();
    fn collect(&self, into: &mut FetchList) {
        match self.full_name() {
            Ok(name) => into.targets.push(name),
            Err(error) => into.error = into.error.take().or(Some(error)),
        }
    }
    fn values(&self, _: &mut dyn Iterator<Item = Tensor>) -> Result<()> {
        Ok(())
    }
}

impl<F: Fetch + ?Sized> Fetch for &F {
    type Values = F::Values;
    fn collect(&self, into: &mut FetchList) {
        F::collect(self, into);
    }
    fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<F::Values> {
        F::values(self, results)
    }
}

impl<F: Fetch> Fetch for [F] {
    type Values = Vec<F::Values>;
    fn collect(&self, into: &mut FetchList) {
        self.iter().for_each(|fetch| fetch.collect(into));
    }
    fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<Vec<F::Values>> {
        self.iter().map(|fetch| fetch.values(results)).collect()
    }
}

impl<F: Fetch> Fetch for Vec<F> {
    type Values = Vec<F::Values>;
    fn collect(&self, into: &mut FetchList) {
        self.as_slice().collect(into);
    }
    fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<Vec<F::Values>> {
        self.as_slice().values(results)
    }
}

impl<F: Fetch, const N: usize> Fetch for [F; N] {
    type Values = Vec<F::Values>;
    fn collect(&self, into: &mut FetchList) {
        self.as_slice().collect(into);
    }
    fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<Vec<F::Values>> {
        self.as_slice().values(results)
    }
}

/// Implements `Fetch` for tuples: a trait cannot be implemented for all lengths at once.
macro_rules! tuples {
    ($($($F:ident $i:tt),+;)*) => {$(
        impl<$($F: Fetch),+> Fetch for ($($F,)+) {
            type Values = ($($F::Values,)+);
            fn collect(&self, into: &mut FetchList) {
                $(self.$i.collect(into);)+
            }
            fn values(&self, results: &mut dyn Iterator<Item = Tensor>) -> Result<Self::Values> {
                Ok(($(self.$i.values(results)?,)+))
            }
        }
    )*};
}
tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}
