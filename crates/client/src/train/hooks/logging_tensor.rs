//! `LoggingTensor`: prints values while training.

use super::every::Timer;
use super::{Every, Hook, RunArgs, RunContext, RunValues};
use crate::train::report::say;
use crate::{Output, Session};
use std::time::Duration;
use tensor::{Result, Tensor};

/// What makes a line of the values.
type Format = Box<dyn Fn(&[(String, Tensor)]) -> String + Send>;

/// Prints values every so many runs of this session, or seconds, and at the end if told.
///
/// ```no_run
/// # use ferroflow::prelude::*;
/// # use ferroflow::train::hooks::{Every, LoggingTensor};
/// # let g = Graph::new();
/// # let loss = g.constant(1.0f32);
/// let logging = LoggingTensor::new(Every::steps(100)).tensor("loss", &loss);
/// let session = MonitoredTrainingSession::new(&g).hook(logging).start()?;
/// # Ok::<(), ferroflow::Error>(())
/// ```
pub struct LoggingTensor {
    tensors: Vec<(String, Output)>,
    timer: Option<Timer>,
    at_end: bool,
    format: Option<Format>,
    runs: i64,
    is_asked: bool,
}

impl LoggingTensor {
    /// Prints so often; what, is still to be told.
    pub fn new(every: Every) -> LoggingTensor {
        let timer = Some(Timer::new(every));
        LoggingTensor { tensors: Vec::new(), timer, at_end: false, format: None, runs: 0, is_asked: false }
    }

    /// Prints at the end only.
    pub fn at_end() -> LoggingTensor {
        LoggingTensor { timer: None, at_end: true, ..LoggingTensor::new(Every::steps(1)) }
    }

    /// Prints this value under a name.
    pub fn tensor(mut self, name: &str, value: &Output) -> LoggingTensor {
        self.tensors.push((name.to_string(), value.clone()));
        self
    }

    /// Prints at the end too.
    pub fn and_at_end(mut self) -> LoggingTensor {
        self.at_end = true;
        self
    }

    /// Prints what this makes of the values, rather than `name = value, …`.
    pub fn format(mut self, format: impl Fn(&[(String, Tensor)]) -> String + Send + 'static) -> LoggingTensor {
        self.format = Some(Box::new(format));
        self
    }

    fn print(&self, values: &[Tensor], took: Option<Duration>) {
        let named: Vec<(String, Tensor)> =
            self.tensors.iter().zip(values).map(|((name, _), value)| (name.clone(), value.clone())).collect();
        if let Some(format) = &self.format {
            say(format_args!("{}", format(&named)));
            return;
        }
        let list: Vec<String> = named.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let took = took.map_or(String::new(), |took| format!(" ({:.3} sec)", took.as_secs_f64()));
        say(format_args!("{}{took}", list.join(", ")));
    }
}

impl Hook for LoggingTensor {
    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        self.is_asked = self.timer.as_ref().is_some_and(|timer| timer.is_due(self.runs));
        let wanted = self.tensors.iter().filter(|_| self.is_asked).map(|(_, value)| value);
        Ok(RunArgs::fetch(wanted))
    }

    fn after_run(&mut self, _: &RunContext<'_>, values: &RunValues) -> Result<()> {
        if let Some(timer) = self.timer.as_mut().filter(|_| self.is_asked) {
            let took = timer.done(self.runs).map(|(_, took)| took);
            self.print(&values.values, took);
        }
        self.runs += 1;
        Ok(())
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        if self.at_end {
            let outputs: Vec<&Output> = self.tensors.iter().map(|(_, value)| value).collect();
            self.print(&session.run(outputs)?, None);
        }
        Ok(())
    }
}
