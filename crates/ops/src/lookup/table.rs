//! `Table`: values under keys. A fixed one is filled once, a mutable one at any time. `table_ops.rs` has the kernels.

use bytes::Bytes;
use framework::Resource;
use parking_lot::RwLock;
use std::collections::HashMap;
use tensor::{Code, DType, Error, Result, Shape, Tensor, Variant, failed_precondition, invalid, unsupported};

/// What a table holds and whether it may change.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// The type of the keys: int32, int64 or string.
    pub key_dtype: DType,
    /// The type of the values.
    pub value_dtype: DType,
    /// Whether entries may be added at any time; otherwise the table is filled once.
    pub is_mutable: bool,
}

/// A table on a device.
pub struct Table {
    spec: TableSpec,
    /// `None` until a fixed table is filled.
    entries: RwLock<Option<HashMap<Key, Cell>>>,
}

impl Resource for Table {
    const TYPE_NAME: &'static str = "N10tensorflow6lookup15LookupInterfaceE";
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Int(i64),
    String(Bytes),
}

#[derive(Clone, PartialEq)]
enum Cell {
    /// The bytes of an element of up to eight bytes, in their order in memory.
    Word([u8; 8]),
    String(Bytes),
    Variant(Variant),
}

impl Table {
    /// An empty table.
    pub fn new(spec: TableSpec) -> Table {
        let entries = spec.is_mutable.then(HashMap::new);
        Table { spec, entries: RwLock::new(entries) }
    }

    /// What it holds.
    pub fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.read().as_ref().map_or(0, HashMap::len)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values under these keys; `default` where there is none, or its element where it has the keys' shape.
    pub fn find(&self, keys: &Tensor, default: &Tensor) -> Result<Tensor> {
        self.check_types(keys.dtype(), default.dtype())?;
        if !default.shape().is_scalar() && default.shape() != keys.shape() {
            return Err(invalid!("Expected shape [] or {} for default value, got {}", keys.shape(), default.shape()));
        }
        let (keys_list, defaults) = (self.keys(keys)?, cells(default)?);
        let entries = self.entries.read();
        let entries = entries.as_ref().ok_or_else(|| failed_precondition!("Table not initialized."))?;
        let found = keys_list.iter().enumerate().map(|(i, key)| {
            let default = defaults.get(i).or(defaults.first());
            entries.get(key).or(default).cloned().unwrap_or(Cell::Word([0; 8]))
        });
        tensor_of(self.spec.value_dtype, keys.shape().clone(), found.collect())
    }

    /// Fills a fixed table. To do so again with as many entries changes nothing.
    pub fn initialize(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_entries(keys, values)?;
        let mut filled = HashMap::new();
        for (key, cell) in self.keys(keys)?.into_iter().zip(cells(values)?) {
            if let Some(before) = filled.insert(key.clone(), cell.clone())
                && before != cell
            {
                let (had, has) = (self.show(before)?, self.show(cell)?);
                return Err(failed_precondition!(
                    "HashTable has different value for same key. Key {} has {had} and trying to add value {has}",
                    match key {
                        Key::Int(i) => i.to_string(),
                        Key::String(s) => String::from_utf8_lossy(&s).into_owned(),
                    }
                ));
            }
        }
        let mut entries = self.entries.write();
        match &*entries {
            // TensorFlow compares the sizes alone (seen when it is given other values).
            Some(before) if before.len() != keys.num_elements() => {
                Err(failed_precondition!("Table was already initialized with different data."))
            }
            Some(_) => Ok(()),
            None => {
                *entries = Some(filled);
                Ok(())
            }
        }
    }

    /// Adds entries to a mutable table, or replaces their values.
    pub fn insert(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_entries(keys, values)?;
        if !self.spec.is_mutable {
            return Err(unsupported!("Insert not supported by InitializableLookupTable implementations"));
        }
        let (keys, cells) = (self.keys(keys)?, cells(values)?);
        self.entries.write().get_or_insert_default().extend(keys.into_iter().zip(cells));
        Ok(())
    }

    /// Replaces all entries of a mutable table, or fills a fixed one.
    pub fn import(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if !self.spec.is_mutable {
            return self.initialize(keys, values);
        }
        self.check_entries(keys, values)?;
        let imported = self.keys(keys)?.into_iter().zip(cells(values)?).collect();
        let before = self.entries.write().replace(imported);
        drop(before); // after the lock is released
        Ok(())
    }

    /// Removes entries of a mutable table; keys without one are passed over.
    pub fn remove(&self, keys: &Tensor) -> Result<()> {
        self.check_types(keys.dtype(), self.spec.value_dtype)?;
        if !self.spec.is_mutable {
            return Err(unsupported!("Remove not supported by InitializableLookupTable implementations"));
        }
        let keys = self.keys(keys)?;
        let mut entries = self.entries.write();
        let entries = entries.get_or_insert_default();
        keys.iter().for_each(|key| drop(entries.remove(key)));
        Ok(())
    }

    /// All keys in their order, and the values under them.
    pub fn export(&self) -> Result<(Tensor, Tensor)> {
        let entries = self.entries.read();
        let entries = entries.as_ref().ok_or_else(|| Error::new(Code::Aborted, "HashTable is not initialized."))?;
        let mut sorted: Vec<(&Key, &Cell)> = entries.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        let count = [sorted.len()];
        let keys = match self.spec.key_dtype {
            DType::String => {
                let strings = sorted.iter().map(|(k, _)| match k {
                    Key::String(s) => s.clone(),
                    Key::Int(_) => Bytes::new(),
                });
                Tensor::from_strings(count, strings.collect())?
            }
            dtype => {
                let words = sorted.iter().map(|(k, _)| match k {
                    Key::Int(i) => Cell::Word(i.to_ne_bytes()),
                    Key::String(s) => Cell::String(s.clone()),
                });
                let wide = tensor_of(DType::I64, count.into(), words.collect())?;
                if dtype == DType::I32 {
                    Tensor::from(wide.as_slice::<i64>()?.iter().map(|&i| i as i32).collect::<Vec<_>>())
                } else {
                    wide
                }
            }
        };
        let values = sorted.iter().map(|(_, cell)| (*cell).clone()).collect();
        Ok((keys, tensor_of(self.spec.value_dtype, count.into(), values)?))
    }

    /// A complaint unless keys and values of these types belong in the table.
    pub fn check_types(&self, keys: DType, values: DType) -> Result<()> {
        let TableSpec { key_dtype, value_dtype, .. } = self.spec;
        if (keys, values) == (key_dtype, value_dtype) {
            return Ok(());
        }
        Err(invalid!(
            "Signature mismatch, have: resource, {keys}, {values} expected: resource, {key_dtype}, {value_dtype}"
        ))
    }

    fn check_entries(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_types(keys.dtype(), values.dtype())?;
        if keys.shape() != values.shape() {
            return Err(invalid!("Expected shape {} for value, got {}", keys.shape(), values.shape()));
        }
        Ok(())
    }

    fn keys(&self, keys: &Tensor) -> Result<Vec<Key>> {
        Ok(match keys.dtype() {
            DType::String => keys.as_strings()?.iter().cloned().map(Key::String).collect(),
            _ => keys.to_i64s()?.into_iter().map(Key::Int).collect(),
        })
    }

    fn show(&self, cell: Cell) -> Result<String> {
        let shown = tensor_of(self.spec.value_dtype, Shape::scalar(), vec![cell])?;
        Ok(match shown.as_strings() {
            Ok([text]) => String::from_utf8_lossy(text).into_owned(),
            _ => shown.to_i64().map_or_else(|_| format!("{shown:?}"), |i| i.to_string()),
        })
    }
}

/// The elements of a tensor one by one.
fn cells(tensor: &Tensor) -> Result<Vec<Cell>> {
    Ok(match tensor.dtype() {
        DType::String => tensor.as_strings()?.iter().cloned().map(Cell::String).collect(),
        DType::Variant => tensor.as_variants()?.iter().cloned().map(Cell::Variant).collect(),
        dtype if (1..=8).contains(&dtype.size()) => {
            let words = tensor.as_bytes()?.chunks_exact(dtype.size()).map(|bytes| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                Cell::Word(word)
            });
            words.collect()
        }
        other => return Err(invalid!("a table cannot hold values of {other}")),
    })
}

/// A tensor of these elements.
fn tensor_of(dtype: DType, shape: Shape, cells: Vec<Cell>) -> Result<Tensor> {
    let wrong = || invalid!("a table of {dtype} holds something else");
    match dtype {
        DType::String => {
            let strings = cells.into_iter().map(|c| if let Cell::String(s) = c { Ok(s) } else { Err(wrong()) });
            Tensor::from_strings(shape, strings.collect::<Result<_>>()?)
        }
        DType::Variant => {
            let variants = cells.into_iter().map(|c| if let Cell::Variant(v) = c { Ok(v) } else { Err(wrong()) });
            Tensor::from_variants(shape, variants.collect::<Result<_>>()?)
        }
        _ => Tensor::from_filled(dtype, shape, |into| {
            for (into, cell) in into.chunks_exact_mut(dtype.size().max(1)).zip(&cells) {
                let Cell::Word(word) = cell else { return Err(wrong()) };
                into.copy_from_slice(&word[..into.len()]);
            }
            Ok(())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(is_mutable: bool) -> Table {
        Table::new(TableSpec { key_dtype: DType::String, value_dtype: DType::I64, is_mutable })
    }

    #[test]
    fn a_fixed_table_is_filled_once() {
        let t = table(false);
        let (keys, values) = (Tensor::from(["a", "b"]), Tensor::from([1i64, 2]));
        assert_eq!(t.find(&keys, &Tensor::scalar(0i64)).unwrap_err().message, "Table not initialized.");
        let twice = t.initialize(&Tensor::from(["a", "a"]), &values).unwrap_err();
        assert!(twice.message.ends_with("Key a has 1 and trying to add value 2"), "{twice}");
        t.initialize(&keys, &values).unwrap();
        assert_eq!(t.find(&Tensor::from(["b", "x"]), &Tensor::scalar(-1i64)).unwrap(), Tensor::from([2i64, -1]));
        assert!(t.initialize(&Tensor::from(["c"]), &Tensor::from([1i64])).is_err());
        assert_eq!(t.insert(&keys, &values).unwrap_err().code, Code::Unimplemented);
    }

    #[test]
    fn a_mutable_table_takes_entries_at_any_time() {
        let t = table(true);
        t.insert(&Tensor::from(["b", "a"]), &Tensor::from([1i64, 2])).unwrap();
        t.insert(&Tensor::from("b"), &Tensor::scalar(3i64)).unwrap();
        assert_eq!(t.export().unwrap(), (Tensor::from(["a", "b"]), Tensor::from([2i64, 3])));
        t.remove(&Tensor::from(["a", "nobody"])).unwrap();
        assert_eq!(t.len(), 1);
        t.import(&Tensor::from(["q"]), &Tensor::from([5i64])).unwrap();
        let defaults = Tensor::from([7i64, 8]);
        assert_eq!(t.find(&Tensor::from(["q", "b"]), &defaults).unwrap(), Tensor::from([5i64, 8]));
        assert!(t.find(&Tensor::from([1i64]), &defaults).is_err());
    }
}
