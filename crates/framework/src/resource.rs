//! What outlives a step: variables, queues, tables, in containers on a device.

use crate::fast::FastMap;
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use tensor::{DType, PartialShape, ResourceHandle, Result, Tensor, failed_precondition, invalid, not_found};

/// Anything that lives on a device under a name.
pub trait Resource: Any + Send + Sync {
    /// The type's name as handles and messages carry it. Resources of one name but different types are separate.
    const TYPE_NAME: &'static str;
}

/// The resources of a device, by container, type and name.
pub struct Resources {
    default_container: String,
    table: Mutex<FastMap<String, Container>>,
}

/// By the type's name, then by the resource's.
type Container = FastMap<&'static str, FastMap<String, Arc<dyn Any + Send + Sync>>>;

impl Resources {
    /// No resources yet; an empty container name in a node will mean `default_container`.
    pub fn new(default_container: impl Into<String>) -> Resources {
        Resources { default_container: default_container.into(), table: Mutex::default() }
    }

    /// The container that an empty name means.
    pub fn default_container(&self) -> &str {
        &self.default_container
    }

    fn container<'a>(&'a self, name: &'a str) -> &'a str {
        if name.is_empty() { &self.default_container } else { name }
    }

    /// The resource of this name, if it exists.
    pub fn get<R: Resource>(&self, container: &str, name: &str) -> Option<Arc<R>> {
        let table = self.table.lock();
        let found = table.get(self.container(container))?.get(R::TYPE_NAME)?.get(name)?;
        found.clone().downcast().ok()
    }

    /// The resource of this name; an error if it does not exist.
    pub fn lookup<R: Resource>(&self, container: &str, name: &str) -> Result<Arc<R>> {
        self.get(container, name)
            .ok_or_else(|| not_found!("Resource {}/{name}/{} does not exist.", self.container(container), R::TYPE_NAME))
    }

    /// The resource of this name, made now if it does not exist.
    pub fn lookup_or_create<R: Resource>(
        &self,
        container: &str,
        name: &str,
        make: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        if let Some(found) = self.get(container, name) {
            return Ok(found);
        }
        let kept = self.keep(container, R::TYPE_NAME, name, Arc::new(make()?));
        kept.downcast().map_err(|_| invalid!("resource {name} has another type"))
    }

    /// Keeps what was made, unless somebody was faster: then theirs is the one.
    fn keep(
        &self,
        container: &str,
        type_name: &'static str,
        name: &str,
        made: Arc<dyn Any + Send + Sync>,
    ) -> Arc<dyn Any + Send + Sync> {
        let mut table = self.table.lock();
        let container = table.entry(self.container(container).to_string()).or_default();
        container.entry(type_name).or_default().entry(name.to_string()).or_insert(made).clone()
    }

    /// Removes one resource; whether it existed.
    pub fn remove<R: Resource>(&self, container: &str, name: &str) -> bool {
        self.remove_typed(container, R::TYPE_NAME, name)
    }

    /// Removes the resource a handle names, of whatever type it is; whether it existed.
    pub fn remove_named(&self, handle: &ResourceHandle) -> bool {
        self.remove_typed(&handle.container, &handle.type_name, &handle.name)
    }

    fn remove_typed(&self, container: &str, type_name: &str, name: &str) -> bool {
        let mut table = self.table.lock();
        let of_type = table.get_mut(self.container(container)).and_then(|c| c.get_mut(type_name));
        let removed = of_type.and_then(|resources| resources.remove(name));
        drop(table); // before what was removed: destructors may take their time
        removed.is_some()
    }

    /// Removes everything in a container.
    pub fn clear(&self, container: &str) {
        let removed = self.table.lock().remove(self.container(container));
        drop(removed); // after the lock is released: destructors may take their time
    }

    /// A handle by which other nodes find this resource.
    pub fn handle<R: Resource>(
        &self,
        device: &str,
        container: &str,
        name: &str,
        resource: Option<&Arc<R>>,
    ) -> ResourceHandle {
        ResourceHandle {
            device: device.to_string(),
            container: self.container(container).to_string(),
            name: name.to_string(),
            hash_code: 0,
            type_name: R::TYPE_NAME.to_string(),
            holds: Vec::new(),
            resource: resource.map(|r| Arc::downgrade(&(r.clone() as Arc<dyn Any + Send + Sync>))),
        }
    }

    /// The resource a handle names: by its short cut if that still lives, by name otherwise.
    pub fn resolve<R: Resource>(&self, handle: &ResourceHandle) -> Result<Arc<R>> {
        if handle.type_name != R::TYPE_NAME && !handle.type_name.is_empty() {
            return Err(invalid!(
                "Trying to access a handle's resource using the wrong type. The handle points to a resource (name '{}') \
                 of type '{}' but you are trying to access the resource as type '{}'",
                handle.name,
                handle.type_name,
                R::TYPE_NAME
            ));
        }
        if let Some(alive) = handle.resource.as_ref().and_then(|weak| weak.upgrade())
            && let Ok(found) = alive.downcast::<R>()
        {
            return Ok(found);
        }
        self.lookup(&handle.container, &handle.name)
    }
}

/// A variable: a tensor that steps read, replace and update. Reference and resource variables alike; as a resource it
/// is the one that handles name.
pub struct Variable {
    name: String,
    dtype: DType,
    shape: PartialShape,
    value: Mutex<Option<Tensor>>,
}

impl Resource for Variable {
    const TYPE_NAME: &'static str = "N10tensorflow3VarE";
}

/// The variable of a reference variable's name, which is another than the resource variable of that name.
pub struct ReferenceVariable(pub Arc<Variable>);

impl Resource for ReferenceVariable {
    const TYPE_NAME: &'static str = "N10tensorflow9LegacyVarE";
}

impl Variable {
    /// A variable without a value.
    pub fn new(name: impl Into<String>, dtype: DType, shape: PartialShape) -> Variable {
        Variable { name: name.into(), dtype, shape, value: Mutex::new(None) }
    }

    /// The name it was declared under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The declared element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The declared shape.
    pub fn shape(&self) -> &PartialShape {
        &self.shape
    }

    /// Whether it has a value.
    pub fn is_initialized(&self) -> bool {
        self.value.lock().is_some()
    }

    /// The value, shared: later updates do not change what was read.
    pub fn read(&self) -> Result<Tensor> {
        self.value.lock().clone().ok_or_else(|| self.uninitialized())
    }

    /// Replaces the value.
    pub fn assign(&self, value: Tensor) -> Result<()> {
        if value.dtype() != self.dtype {
            return Err(invalid!("variable {} holds {}, found a value of {}", self.name, self.dtype, value.dtype()));
        }
        let old = self.value.lock().replace(value);
        drop(old); // after the lock is released
        Ok(())
    }

    /// Changes the value under the variable's lock: in place where nobody else holds it.
    pub fn update<R>(&self, change: impl FnOnce(&mut Tensor) -> Result<R>) -> Result<R> {
        change(self.value.lock().as_mut().ok_or_else(|| self.uninitialized())?)
    }

    /// Like [`update`](Variable::update), but sees also that there is no value yet.
    pub fn with<R>(&self, change: impl FnOnce(&mut Option<Tensor>) -> Result<R>) -> Result<R> {
        change(&mut self.value.lock())
    }

    fn uninitialized(&self) -> tensor::Error {
        failed_precondition!("Attempting to use uninitialized value {}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_found_by_container_and_name() {
        let resources = Resources::new("ps");
        let make = || Ok(Variable::new("v", DType::F32, PartialShape::unknown()));
        let a = resources.lookup_or_create("", "v", make).unwrap();
        let b = resources.lookup_or_create("ps", "v", make).unwrap();
        assert!(Arc::ptr_eq(&a, &b), "an empty container is the default one");
        assert!(resources.lookup::<Variable>("other", "v").is_err());
        let handle = resources.handle("/d", "", "v", Some(&a));
        assert!(Arc::ptr_eq(&resources.resolve::<Variable>(&handle).unwrap(), &a));
        resources.clear("ps");
        drop((a, b));
        assert!(resources.resolve::<Variable>(&handle).is_err());
    }

    #[test]
    fn types_have_names_of_their_own() {
        let resources = Resources::new("ps");
        let make = || Ok(Variable::new("v", DType::F32, PartialShape::unknown()));
        let plain = resources.lookup_or_create("", "v", make).unwrap();
        assert!(resources.get::<ReferenceVariable>("", "v").is_none());
        let reference = resources.lookup_or_create("", "v", || Ok(ReferenceVariable(make()?.into()))).unwrap();
        assert!(!Arc::ptr_eq(&plain, &reference.0));
        let handle = resources.handle("/d", "", "v", Some(&reference));
        let refused = resources.resolve::<Variable>(&handle).err().expect("a handle of another type");
        assert!(refused.message.contains("wrong type"), "{refused}");
        assert!(resources.remove_named(&handle) && !resources.remove_named(&handle));
        assert!(resources.get::<Variable>("", "v").is_some());
    }

    #[test]
    fn what_was_read_stays_as_it_was() {
        let v = Variable::new("v", DType::F32, PartialShape::unknown());
        assert!(v.read().unwrap_err().message.contains("uninitialized value v"));
        v.assign(Tensor::from([1.0f32, 2.0])).unwrap();
        let before = v.read().unwrap();
        v.update(|t| {
            t.as_mut_slice::<f32>()?[0] = 9.0;
            Ok(())
        })
        .unwrap();
        assert_eq!(before, Tensor::from([1.0f32, 2.0]));
        assert_eq!(v.read().unwrap(), Tensor::from([9.0f32, 2.0]));
    }
}
