//! The resource that a node declares (a queue, a table, a reader): made by the first step, found by all others.
//!
//! With a shared name, nodes of several sessions mean the same resource. Without one it belongs to the node alone and
//! goes when the node's kernel goes. Its handle is a resource, or in old graphs a reference to two strings.

use framework::{Device, KernelBuild, KernelContext, Resource, Resources, Value, Variable};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tensor::{DType, PartialShape, Result, Tensor, invalid};

/// What a declaring node's kernel keeps.
pub(crate) struct Declared<R: Resource> {
    device: Arc<dyn Device>,
    container: String,
    node_name: String,
    /// Empty: the resource is the node's own.
    shared_name: String,
    made: Mutex<Option<Made<R>>>,
}

struct Made<R> {
    name: String,
    resource: Weak<R>,
    handle: Value,
}

impl<R: Resource> Declared<R> {
    /// Reads the `container` and `shared_name` attributes.
    pub fn new(b: &KernelBuild<'_>) -> Result<Declared<R>> {
        Ok(Declared {
            device: b.device.clone(),
            container: b.attr("container")?,
            node_name: b.node.name.clone(),
            shared_name: b.attr("shared_name")?,
            made: Mutex::new(None),
        })
    }

    /// Reads the attributes of a table, which may also be shared under the node's name.
    pub fn new_table(b: &KernelBuild<'_>) -> Result<Declared<R>> {
        let mut declared = Declared::new(b)?;
        if declared.shared_name.is_empty() && b.attr::<bool>("use_node_name_sharing")? {
            declared.shared_name = b.node.name.clone();
        }
        Ok(declared)
    }

    /// Sets output 0 to the handle. `make` is given the resource's name, `check` sees one that others made.
    pub fn output(
        &self,
        ctx: &mut KernelContext<'_>,
        make: impl FnMut(&str) -> Result<R>,
        check: impl FnOnce(&R, &str) -> Result<()>,
    ) -> Result<()> {
        let is_reference = ctx.node().op.outputs[0].is_ref;
        let mut made = self.made.lock();
        if let Some(alive) = made.as_ref().filter(|m| m.resource.strong_count() > 0) {
            return ctx.set_value(0, alive.handle.clone());
        }
        let (name, resource) = self.find_or_make(make)?;
        check(&resource, &name)?;
        let handle = if is_reference { self.reference(&name)? } else { self.handle(&name, &resource)? };
        *made = Some(Made { name, resource: Arc::downgrade(&resource), handle: handle.clone() });
        ctx.set_value(0, handle)
    }

    fn find_or_make(&self, mut make: impl FnMut(&str) -> Result<R>) -> Result<(String, Arc<R>)> {
        let resources = self.device.resources();
        if !self.shared_name.is_empty() {
            let found = resources.lookup_or_create(&self.container, &self.shared_name, || make(&self.shared_name))?;
            return Ok((self.shared_name.clone(), found));
        }
        let mut number = 0u64;
        loop {
            let name = format!("_{number}_{}", self.node_name);
            let mut is_new = false;
            let found = resources.lookup_or_create(&self.container, &name, || {
                is_new = true;
                make(&name)
            })?;
            if is_new {
                return Ok((name, found));
            }
            number += 1; // another session's node of the same name has that one
        }
    }

    fn handle(&self, name: &str, resource: &Arc<R>) -> Result<Value> {
        let device = self.device.name().to_string();
        let handle = self.device.resources().handle(&device, &self.container, name, Some(resource));
        Ok(Value::Tensor(Tensor::from_handles([], vec![handle])?))
    }

    fn reference(&self, name: &str) -> Result<Value> {
        let container = match self.container.as_str() {
            "" => self.device.resources().default_container(),
            named => named,
        };
        let variable = Variable::new(&self.node_name, DType::String, PartialShape::from([2]));
        variable.assign(Tensor::from([container, name]))?;
        Ok(Value::Ref(Arc::new(variable)))
    }
}

impl<R: Resource> Drop for Declared<R> {
    fn drop(&mut self) {
        if let (true, Some(made)) = (self.shared_name.is_empty(), self.made.lock().take()) {
            self.device.resources().remove::<R>(&self.container, &made.name);
        }
    }
}

/// The resource that an input names, by a handle or by a reference to container and name.
pub(crate) fn resolve<R: Resource>(resources: &Resources, input: &Value) -> Result<Arc<R>> {
    let tensor = input.tensor()?;
    if tensor.dtype() == DType::Resource {
        return match tensor.as_handles()? {
            [handle] => resources.resolve(handle),
            other => Err(invalid!("wanted one resource handle, found {}", other.len())),
        };
    }
    match tensor.as_strings()? {
        [container, name] => resources.lookup(&String::from_utf8_lossy(container), &String::from_utf8_lossy(name)),
        other => Err(invalid!("Resource handle must have 2 elements, found {}", other.len())),
    }
}
