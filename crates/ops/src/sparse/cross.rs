//! `SparseCross`: every combination of features, one from each column, as joined text or as a hash.

use framework::kernel::kernel;
use framework::{Kernel, KernelBuild, KernelContext, Op};
use tensor::{Bytes, DType, PartialShape, Result, Tensor, invalid};

pub fn ops() -> Vec<Op> {
    vec![
        Op::new("SparseCross")
            .input("indices: N*int64")
            .input("values: sparse_types")
            .input("shapes: N*int64")
            .input("dense_inputs: dense_types")
            .output("output_indices: int64")
            .output("output_values: out_type")
            .output("output_shape: int64")
            .attr("N: int >= 0")
            .attr("hashed_output: bool")
            .attr("num_buckets: int >= 0")
            .attr("hash_key: int")
            .attr("sparse_types: list({int64, string}) >= 0")
            .attr("dense_types: list({int64, string}) >= 0")
            .attr("out_type: {int64, string}")
            .attr("internal_type: {int64, string}")
            .shape(|_| Ok(vec![PartialShape::new([None, Some(2)]), PartialShape::of_rank(1), PartialShape::from([2])]))
            .kernel(kernel(SparseCross::new)),
    ]
}

struct SparseCross {
    /// How many columns are sparse.
    sparse: usize,
    num_buckets: u64,
    hash_key: u64,
    is_hashed: bool,
}

impl SparseCross {
    fn new(b: &KernelBuild<'_>) -> Result<SparseCross> {
        let sparse: i64 = b.attr("N")?;
        let types: Vec<DType> = b.attr("sparse_types")?;
        if types.len() as i64 != sparse {
            return Err(invalid!("SparseCross has {sparse} index lists for {} value lists", types.len()));
        }
        Ok(SparseCross {
            sparse: types.len(),
            num_buckets: b.attr::<i64>("num_buckets")? as u64,
            hash_key: b.attr::<i64>("hash_key")? as u64,
            is_hashed: b.dtype("out_type")? == DType::I64,
        })
    }

    /// The columns, sparse ones first, and the number of rows they all have.
    fn columns<'a>(&self, ctx: &'a KernelContext<'_>) -> Result<(Vec<Column<'a>>, usize)> {
        let dense = 3 * self.sparse..ctx.num_inputs();
        let mut rows = None;
        let mut agree = |found: i64, what: String| match *rows.get_or_insert(found) {
            wanted if wanted == found => Ok(()),
            wanted => Err(invalid!("Expected batch size {wanted}, found {found} in {what}")),
        };
        for i in 0..self.sparse {
            let shape = ctx.input(2 * self.sparse + i);
            let [batch, _] = shape.as_slice::<i64>()? else {
                return Err(invalid!("shapes[{i}] should hold 2 sizes but received shape {}", shape.shape()));
            };
            agree(*batch, format!("shapes[{i}]"))?;
        }
        for i in dense.clone() {
            let [batch, _] = ctx.input(i).dims() else {
                return Err(invalid!("Dense inputs should be a matrix but received shape {}", ctx.input(i).shape()));
            };
            agree(*batch as i64, format!("dense input {}", i - dense.start))?;
        }
        let rows = rows.ok_or_else(|| invalid!("SparseCross needs at least one column"))?;
        let rows = usize::try_from(rows).map_err(|_| invalid!("a batch size of {rows} is not possible"))?;
        let mut columns = Vec::new();
        for i in 0..self.sparse {
            columns.push(Column::sparse(ctx.input(i), ctx.input(self.sparse + i), rows)?);
        }
        for i in dense {
            let (values, per_row) = (ctx.input(i), ctx.input(i).dims()[1]);
            columns.push(Column { features: Features::of(values)?, rows: Rows::Even(per_row) });
        }
        Ok((columns, rows))
    }
}

/// One column: all features of all rows, row by row.
struct Column<'a> {
    features: Features<'a>,
    rows: Rows,
}

enum Features<'a> {
    Texts(&'a [Bytes]),
    Numbers(&'a [i64]),
}

/// Where each row's features begin and how many they are.
enum Rows {
    /// The same number in every row.
    Even(usize),
    /// Only these rows have any.
    Uneven(Vec<Row>),
}

struct Row {
    row: usize,
    start: usize,
    count: usize,
}

impl<'a> Features<'a> {
    fn of(values: &'a Tensor) -> Result<Features<'a>> {
        Ok(match values.dtype() {
            DType::String => Features::Texts(values.as_strings()?),
            _ => Features::Numbers(values.as_slice()?),
        })
    }

    fn text(&self, i: usize) -> Bytes {
        match self {
            Features::Texts(texts) => texts[i].clone(),
            Features::Numbers(numbers) => numbers[i].to_string().into(),
        }
    }

    fn hash(&self, i: usize) -> u64 {
        match self {
            Features::Texts(texts) => crate::strings::fingerprint64(&texts[i]),
            Features::Numbers(numbers) => numbers[i] as u64,
        }
    }
}

impl<'a> Column<'a> {
    fn sparse(indices: &Tensor, values: &'a Tensor, rows: usize) -> Result<Column<'a>> {
        let [count, 2] = *indices.dims() else {
            return Err(invalid!(
                "Input indices should be a matrix of 2 columns but received shape {}",
                indices.shape()
            ));
        };
        if values.dims() != [count] {
            return Err(invalid!("Expected size of values to be {count}, found shape {}", values.shape()));
        }
        let mut filled: Vec<Row> = Vec::new();
        for (i, index) in indices.as_slice::<i64>()?.chunks_exact(2).enumerate() {
            let last = filled.last().map_or(0, |last| last.row);
            let row = usize::try_from(index[0]).ok().filter(|row| (last..rows).contains(row));
            let row =
                row.ok_or_else(|| invalid!("row {} of feature {i} is out of order or not in [0, {rows})", index[0]))?;
            match filled.last_mut() {
                Some(last) if last.row == row => last.count += 1,
                _ => filled.push(Row { row, start: i, count: 1 }),
            }
        }
        Ok(Column { features: Features::of(values)?, rows: Rows::Uneven(filled) })
    }

    /// The first feature of a row, and how many there are.
    fn row(&self, row: usize) -> (usize, usize) {
        match &self.rows {
            Rows::Even(count) => (row * count, *count),
            Rows::Uneven(filled) => {
                filled.binary_search_by_key(&row, |r| r.row).map_or((0, 0), |i| (filled[i].start, filled[i].count))
            }
        }
    }
}

impl Kernel for SparseCross {
    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (columns, rows) = self.columns(ctx)?;
        // A row without features in one column has no combinations.
        let filled: Vec<usize> = if columns.iter().any(|c| matches!(c.rows, Rows::Even(0))) {
            Vec::new()
        } else {
            let uneven = columns.iter().find_map(|c| match &c.rows {
                Rows::Uneven(filled) => Some(filled.iter().map(|r| r.row).collect()),
                Rows::Even(_) => None,
            });
            uneven.unwrap_or_else(|| (0..rows).collect())
        };

        let (mut indices, mut texts, mut hashes): (Vec<i64>, Vec<Bytes>, Vec<i64>) = Default::default();
        let mut longest = 0i64;
        for row in filled {
            let mut combinations = Combinations::new(columns.iter().map(|c| c.row(row)).collect());
            let mut count = 0i64;
            while let Some(picked) = combinations.next() {
                indices.extend([row as i64, count]);
                count += 1;
                if self.is_hashed {
                    hashes.push(self.hashed(&columns, picked));
                } else {
                    let parts: Vec<Bytes> = columns.iter().zip(picked).map(|(c, &i)| c.features.text(i)).collect();
                    texts.push(parts.join(&b"_X_"[..]).into());
                }
            }
            longest = longest.max(count);
        }

        let total = indices.len() / 2;
        let values = if self.is_hashed { hashes.into() } else { Tensor::from_strings([total], texts)? };
        drop(columns);
        ctx.set_output(0, Tensor::from_vec([total, 2], indices)?)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, Tensor::from([rows as i64, longest]))
    }
}

impl SparseCross {
    fn hashed(&self, columns: &[Column<'_>], picked: &[usize]) -> i64 {
        let parts = columns.iter().zip(picked).map(|(c, &i)| c.features.hash(i));
        let hash = parts.fold(self.hash_key, joined_fingerprint);
        // Without buckets the hash only loses its sign.
        let buckets = if self.num_buckets > 0 { self.num_buckets } else { i64::MAX as u64 };
        (hash % buckets) as i64
    }
}

/// The fingerprint of one thing followed by another, from the fingerprints of both.
fn joined_fingerprint(first: u64, second: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |value: u64| value ^ value >> 47;
    let result = first ^ MULTIPLIER ^ mix(second.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    mix(mix(result.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER))
}

/// Counts through one choice from each of several ranges, the last one fastest.
struct Combinations {
    ranges: Vec<(usize, usize)>,
    picked: Vec<usize>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Fresh,
    Running,
    Done,
}

impl Combinations {
    fn new(ranges: Vec<(usize, usize)>) -> Combinations {
        let picked = ranges.iter().map(|r| r.0).collect();
        let state = if ranges.iter().any(|r| r.1 == 0) { State::Done } else { State::Fresh };
        Combinations { ranges, picked, state }
    }

    fn next(&mut self) -> Option<&[usize]> {
        match self.state {
            State::Done => return None,
            State::Fresh => self.state = State::Running,
            State::Running => {
                let last =
                    (0..self.ranges.len()).rev().find(|&i| self.picked[i] + 1 < self.ranges[i].0 + self.ranges[i].1);
                let Some(i) = last else {
                    self.state = State::Done;
                    return None;
                };
                self.picked[i] += 1;
                for j in i + 1..self.ranges.len() {
                    self.picked[j] = self.ranges[j].0;
                }
            }
        }
        Some(&self.picked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::testing::eval;
    use framework::Attr;

    fn cross(inputs: &[Tensor], n: i64, dense: Vec<DType>, hashed: bool) -> Result<Vec<Tensor>> {
        let value_type = if hashed { DType::I64 } else { DType::String };
        let attrs: Vec<(&str, Attr)> = vec![
            ("N", n.into()),
            ("hashed_output", hashed.into()),
            ("num_buckets", 0i64.into()),
            ("hash_key", 956888297470i64.into()),
            ("sparse_types", vec![value_type; n as usize].into()),
            ("dense_types", dense.into()),
            ("out_type", value_type.into()),
            ("internal_type", value_type.into()),
        ];
        eval("SparseCross", inputs, &attrs)
    }

    #[test]
    fn every_combination_is_made_once() {
        let indices = Tensor::from([[0i64, 0], [1, 0], [1, 1]]);
        let shape = Tensor::from([3i64, 2]);
        let inputs = [
            indices.clone(),
            indices,
            Tensor::from(["a", "b", "c"]),
            Tensor::from(["d", "e", "f"]),
            shape.clone(),
            shape,
        ];
        let crossed = cross(&inputs, 2, vec![], false).unwrap();
        assert_eq!(crossed[0], Tensor::from([[0i64, 0], [1, 0], [1, 1], [1, 2], [1, 3]]));
        assert_eq!(crossed[1], Tensor::from(["a_X_d", "b_X_e", "b_X_f", "c_X_e", "c_X_f"]));
        assert_eq!(crossed[2], Tensor::from([3i64, 4]));
    }

    #[test]
    fn bad_rows_are_refused() {
        for indices in [[[3i64, 0], [1, 0]], [[1, 0], [0, 0]], [[-1, 0], [0, 0]]] {
            let inputs = [indices.into(), Tensor::from([1i64, 2]), Tensor::from([3i64, 1])];
            assert!(cross(&inputs, 1, vec![], true).is_err());
        }
        assert!(cross(&[], 0, vec![], true).is_err());
    }

    /// From TensorFlow 2.21, `strings.to_hash_bucket_fast(_, 2**62)`.
    #[test]
    fn fingerprints_are_farmhash() {
        let long: String = (0..200).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
        let want: [(usize, u64); 7] = [
            (0, 1936946117179621455),
            (3, 2640714258260161385),
            (8, 4533385575889643785),
            (16, 1469030743107030717),
            (32, 4582052690787775898),
            (64, 2038540033609931770),
            (200, 2725806534515858166),
        ];
        for (len, hash) in want {
            assert_eq!(crate::strings::fingerprint64(&long.as_bytes()[..len]) % (1 << 62), hash, "of {len} letters");
        }
    }
}
