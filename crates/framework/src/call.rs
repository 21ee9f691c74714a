//! Functions of the graph's library, called by kernels.
//!
//! A kernel knows a function by its name; whoever executes graphs makes it callable. The body runs through the same
//! executor as everything else, as a part of the step that calls it, and ends when that step ends.

use crate::graph::NameAttrList;
use crate::kernel::{AsyncContext, AsyncKernel, BoxFuture, Outputs, Value};
use crate::step::StepContext;
use std::sync::{Arc, OnceLock};
use tensor::{DType, Result, Tensor, invalid, unsupported};

/// Makes the functions of a library callable.
pub trait Functions: Send + Sync {
    /// Whether there is a function of this name.
    fn contains(&self, name: &str) -> bool;
    /// The function with these attributes, ready to be called: a copy of its own, with states of its own.
    fn instantiate(&self, function: &NameAttrList) -> Result<Arc<dyn Callable>>;
}

/// A function that is ready to be called, by several at once.
pub trait Callable: Send + Sync {
    /// The types of the arguments.
    fn inputs(&self) -> &[DType];
    /// The types of the results.
    fn outputs(&self) -> &[DType];
    /// Runs it as a part of a step; arguments were checked. To cancel is to drop the future.
    fn call(&self, step: &StepContext, arguments: Vec<Tensor>) -> BoxFuture<Result<Vec<Tensor>>>;
}

/// A function that a node names, made callable when it is first called: functions may call themselves.
pub struct Function {
    name: NameAttrList,
    functions: Arc<dyn Functions>,
    made: OnceLock<Result<Arc<dyn Callable>>>,
}

impl Function {
    /// The function of this name.
    pub fn new(name: NameAttrList, functions: Arc<dyn Functions>) -> Function {
        Function { name, functions, made: OnceLock::new() }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name.name
    }

    /// The function, ready to be called.
    pub fn callable(&self) -> Result<&Arc<dyn Callable>> {
        self.made.get_or_init(|| self.functions.instantiate(&self.name)).as_ref().map_err(Clone::clone)
    }

    /// Runs it as a part of a step.
    pub fn call(&self, step: &StepContext, arguments: Vec<Tensor>) -> BoxFuture<Result<Vec<Tensor>>> {
        let callable = self.callable().and_then(|callable| {
            check_arguments(self.name(), callable.inputs(), &arguments)?;
            Ok(callable)
        });
        match callable {
            Ok(callable) => callable.call(step, arguments),
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

fn check_arguments(name: &str, wanted: &[DType], found: &[Tensor]) -> Result<()> {
    if wanted.len() != found.len() {
        return Err(invalid!("function {name} takes {} arguments, found {}", wanted.len(), found.len()));
    }
    for (i, (wanted, found)) in wanted.iter().zip(found).enumerate() {
        if found.dtype() != *wanted {
            return Err(invalid!("argument {i} of function {name} is {wanted}, found {}", found.dtype()));
        }
    }
    Ok(())
}

/// The kernel that calls a function with all its inputs.
pub struct Call(pub Function);

impl AsyncKernel for Call {
    fn compute(&self, ctx: AsyncContext) -> BoxFuture<Result<Outputs>> {
        let arguments: Result<Vec<Tensor>> = ctx.inputs.iter().map(Value::tensor).collect();
        match arguments {
            Ok(arguments) => {
                drop(ctx.inputs); // the function may write to what nobody else holds
                let call = self.0.call(&ctx.step, arguments);
                Box::pin(async move { Ok(call.await?.into_iter().map(Value::Tensor).collect()) })
            }
            Err(e) => Box::pin(std::future::ready(Err(e))),
        }
    }
}

/// For places where no function can be called.
pub(crate) struct NoFunctions;

impl Functions for NoFunctions {
    fn contains(&self, _: &str) -> bool {
        false
    }

    fn instantiate(&self, function: &NameAttrList) -> Result<Arc<dyn Callable>> {
        Err(unsupported!("function {} cannot be called here", function.name))
    }
}
