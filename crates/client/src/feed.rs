//! Values given to a run in place of what the graph would compute.

use crate::Output;
use tensor::{Error, Result, Tensor, invalid};

/// Values for a run, each under the name of the output it stands for; usually written with [`feed!`](crate::feed).
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([None]);
/// let session = Session::new(&g)?;
/// let doubled = session.run_with(&x * 2.0, feed! { x => [1.0f32, 2.0] })?;
/// assert_eq!(doubled, Tensor::from([2.0f32, 4.0]));
/// # Ok::<(), ferroflow::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Feeds {
    values: Vec<(String, Tensor)>,
    error: Option<Error>,
}

impl Feeds {
    /// Nothing fed.
    pub fn new() -> Feeds {
        Feeds::default()
    }

    /// Feeds one more output: a placeholder, or anything else that the run shall not compute.
    pub fn with(mut self, output: impl AsRef<Output>, value: impl Into<Tensor>) -> Feeds {
        match output.as_ref().full_name() {
            Ok(name) => self.values.push((name, value.into())),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// These and others; an error if both feed the same output.
    pub(crate) fn join(mut self, other: Feeds) -> Result<Feeds> {
        let is_fed = |name: &str| self.values.iter().any(|(own, _)| own == name);
        if let Some((name, _)) = other.values.iter().find(|(name, _)| is_fed(name)) {
            return Err(invalid!("{name} is fed twice: by the program and a hook, or by two hooks"));
        }
        self.values.extend(other.values);
        self.error = self.error.or(other.error);
        Ok(self)
    }

    /// The values by name (`node:index`); an error if one is for something that could not be built.
    pub fn into_named(self) -> Result<Vec<(String, Tensor)>> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.values),
        }
    }
}

/// Values for a run: `feed! { x => images, labels => digits }`. Anything that turns into a `Tensor` can be fed.
#[macro_export]
macro_rules! feed {
    ($($output:expr => $value:expr),* $(,)?) => {
        $crate::Feeds::new()$(.with(&$output, $value))*
    };
}
