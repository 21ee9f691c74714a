//! Functions of a graph's library, run by the executor for the kernels that call them.

use crate::executor::{Executor, KernelCache};
use framework::graph::{FunctionLibrary, NameAttrList};
use framework::{BoxFuture, Callable, Device, Env, Functions, Graph, StepContext};
use std::sync::Arc;
use tensor::{DType, Result, Tensor, internal};

/// The functions of one graph on one device.
pub(crate) struct LibraryFunctions {
    pub(crate) library: FunctionLibrary,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) env: Arc<dyn Env>,
}

impl Functions for LibraryFunctions {
    fn contains(&self, name: &str) -> bool {
        self.library.op(name).is_some()
    }

    fn instantiate(&self, function: &NameAttrList) -> Result<Arc<dyn Callable>> {
        let body = self.library.instantiate(function)?;
        Ok(Arc::new(Compiled {
            inputs: types(&body, "_Arg")?,
            outputs: types(&body, "_Retval")?,
            executor: Executor::compile(&body, &self.device, &self.env, &KernelCache::default())?,
        }))
    }
}

/// A function whose body is compiled.
struct Compiled {
    inputs: Vec<DType>,
    outputs: Vec<DType>,
    executor: Executor,
}

impl Callable for Compiled {
    fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    fn outputs(&self) -> &[DType] {
        &self.outputs
    }

    fn call(&self, step: &StepContext, arguments: Vec<Tensor>) -> BoxFuture<Result<Vec<Tensor>>> {
        let context = match step.call(arguments, self.outputs.len()) {
            Ok(context) => Arc::new(context),
            Err(e) => return Box::pin(std::future::ready(Err(e))),
        };
        let running = self.executor.run(context.clone());
        Box::pin(async move {
            running.await?;
            let frame = context.call.as_ref().ok_or_else(|| internal!("a call without arguments"))?;
            frame.take_results()
        })
    }
}

/// The types of a body's arguments or results, by their numbers.
fn types(body: &Graph, op: &str) -> Result<Vec<DType>> {
    let mut types: Vec<(i64, DType)> = Vec::new();
    for (_, node) in body.nodes().filter(|(_, node)| node.op.name == op) {
        types.push((node.attr("index")?, node.attr("T")?));
    }
    types.sort_by_key(|(index, _)| *index);
    Ok(types.into_iter().map(|(_, dtype)| dtype).collect())
}
