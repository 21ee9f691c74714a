//! `NanTensor`: ends training when a value is no number any more.

use super::{Hook, RunArgs, RunContext, RunValues};
use crate::train::report::say;
use crate::{Graph, Output};
use tensor::{DType, Result, Tensor, invalid};

/// Ends training when a value, usually the loss, is NaN: with an error, or quietly.
pub struct NanTensor {
    value: Output,
    fails: bool,
}

impl NanTensor {
    /// Watches this value; if it is NaN, the run fails with `InvalidArgument`.
    pub fn new(value: &Output) -> NanTensor {
        NanTensor { value: value.clone(), fails: true }
    }

    /// Whether the run fails, or training merely ends with it.
    pub fn fail_on_nan(mut self, yes: bool) -> NanTensor {
        self.fails = yes;
        self
    }
}

impl Hook for NanTensor {
    fn begin(&mut self, _: &Graph) -> Result<()> {
        match self.value.dtype() {
            DType::F32 | DType::F64 => Ok(()),
            other => Err(invalid!("NanTensor watches f32 and f64, and {} is {other}", self.value.name())),
        }
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::fetch([&self.value]))
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        if !values.values.first().is_some_and(has_nan) {
            return Ok(());
        }
        let name = self.value.name();
        if self.fails {
            return Err(invalid!("NaN loss during training: {name} is not a number"));
        }
        say(format_args!("training ends because {name} is not a number"));
        context.request_stop();
        Ok(())
    }
}

fn has_nan(value: &Tensor) -> bool {
    match value.dtype() {
        DType::F64 => value.as_slice::<f64>().is_ok_and(|values| values.iter().any(|v| v.is_nan())),
        _ => value.as_slice::<f32>().is_ok_and(|values| values.iter().any(|v| v.is_nan())),
    }
}
