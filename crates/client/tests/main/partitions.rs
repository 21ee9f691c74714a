//! Variables in parts: cut, looked up, trained and saved as TensorFlow does.

use crate::golden::{cases, check_all, compare};
use ferroflow::prelude::*;
use ferroflow::train::Saver;
use ferroflow::{
    PartitionStrategy, Partitioner, embedding_lookup, fixed_size_partitioner, min_max_variable_partitioner,
    variable_axis_size_partitioner,
};
use serde_json::Value;

fn matrix(value: &Value) -> Tensor {
    let rows: Vec<&Vec<Value>> = value.as_array().unwrap().iter().map(|row| row.as_array().unwrap()).collect();
    let values = rows.iter().flat_map(|row| row.iter().map(|v| v.as_f64().unwrap() as f32)).collect();
    Tensor::from_vec([rows.len(), rows[0].len()], values).unwrap()
}

#[test]
fn partitioners_decide_as_tensorflows_do() {
    let path = format!("{}/../../testdata/training/partitions.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = file["partitioners"].as_array().unwrap();
    assert!(cases.len() > 100);
    let sizes = |value: &Value| value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect();
    for case in cases {
        let (args, shape): (Vec<usize>, Vec<usize>) = (sizes(&case["args"]), sizes(&case["shape"]));
        let partitioner = match (case["kind"].as_str().unwrap(), args.as_slice()) {
            ("fixed_size", &[count]) => fixed_size_partitioner(count),
            ("axis_size", &[bytes]) => variable_axis_size_partitioner(bytes),
            ("axis_size", &[bytes, most]) => variable_axis_size_partitioner(bytes).max_shards(most),
            ("min_max", &[most, least]) => min_max_variable_partitioner(most).min_slice_size(least),
            other => panic!("{other:?}"),
        };
        let partitioner = partitioner.axis(case["axis"].as_u64().unwrap() as usize);
        let dtype = crate::golden::dtype(&case["dtype"]);
        let found = partitioner.partitions(&shape.into(), dtype).unwrap();
        assert_eq!(found, sizes(&case["partitions"]), "{case}");
    }
}

#[test]
fn rows_of_parts_are_looked_up_and_trained_as_tensorflow_does() {
    assert!(!cases("partitions.json").is_empty());
    check_all("partitions.json", |case| {
        for resource in [false, true] {
            let g = Graph::new();
            g.use_resource_variables(resource);
            let count = case["parts"].as_u64().unwrap() as usize;
            let table = g.partitioned_variable("table", matrix(&case["initial"]), &fixed_size_partitioner(count));
            let ids = case["ids"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
            let ids: Vec<i64> = ids.map(|v| v.as_i64().unwrap()).collect();
            let ids = g.constant(Tensor::from_vec([3, 2], ids).unwrap());
            let rows = match case["strategy"].as_str().unwrap() {
                "mod" => embedding_lookup(table.parts(), &ids, PartitionStrategy::Mod),
                _ => table.embedding_lookup(&ids),
            };
            assert_eq!(rows.shape().to_string(), "[3,2,2]");
            let train = Adagrad::new(0.5).minimize(&rows.square().sum());
            let init = g.initialize_all();
            let session = Session::new(&g).unwrap();
            session.run(&init).unwrap();
            let found = session.run(&rows).unwrap();
            for _ in 0..3 {
                session.run(&train).unwrap();
            }
            let after = session.run(table.value()).unwrap();
            let wanted = case["rows"].as_array().unwrap().iter().flat_map(|r| r.as_array().unwrap().clone()).collect();
            let wanted = matrix(&Value::Array(wanted)).reshaped([3, 2, 2]).unwrap();
            compare("rows", &found, &wanted)?;
            compare("after", &after, &matrix(&case["after"]))?;
        }
        Ok(())
    });
}

fn table(parts: &Option<Partitioner>, resource: bool) -> (Graph, Operation, Operation, Saver, Vec<Output>) {
    let g = Graph::new();
    g.use_resource_variables(resource);
    let initial = initializers::random_uniform(-1.0, 1.0, [7, 3]);
    let (whole, rows) = match parts {
        Some(partitioner) => {
            let table = g.partitioned_variable("layer/table", initial, partitioner);
            (table.value(), table.value())
        }
        None => {
            let table = g.variable("layer/table", initial);
            (Output::from(&table), Output::from(&table))
        }
    };
    let train = Operation::clone(&Adam::new(0.1).minimize(&(rows - 1.0).square().sum()));
    let init = g.initialize_all();
    let saver = Saver::new(&g);
    // The slots, joined along the dimension that was cut.
    let slot = |name: &str| {
        let named = |v: &&Variable| v.name().starts_with("layer/table") && v.name().rsplit('/').next() == Some(name);
        let all = g.global_variables();
        let parts: Vec<Output> = all.iter().filter(named).map(Output::from).collect();
        let axis = if parts[0].shape().dim(1) == Some(3) { 0 } else { 1 };
        match parts.as_slice() {
            [only] => only.clone(),
            _ => concat(&parts.iter().collect::<Vec<_>>(), axis),
        }
    };
    let values = vec![whole, slot("Adam"), slot("Adam_1")];
    (g, init, train, saver, values)
}

#[test]
fn what_was_saved_in_parts_is_restored_into_others() {
    let folder = tempfile::tempdir().unwrap();
    let cuts =
        [None, Some(fixed_size_partitioner(1)), Some(fixed_size_partitioner(2)), Some(fixed_size_partitioner(3))]
            .into_iter()
            .chain([Some(fixed_size_partitioner(2).axis(1))]);
    let cuts: Vec<Option<Partitioner>> = cuts.collect();
    for (number, from) in cuts.iter().enumerate() {
        let resource = number % 2 == 0;
        let (g, init, train, saver, values) = table(from, resource);
        let session = Session::new(&g).unwrap();
        session.run(&init).unwrap();
        session.run(&train).unwrap();
        let saved = session.run(&values).unwrap();
        let path = saver.save(&session, folder.path().join("model"), Some(number as i64)).unwrap();
        for into in &cuts {
            let (g, _, train, saver, values) = table(into, !resource);
            let session = Session::new(&g).unwrap();
            saver.restore(&session, &path).unwrap();
            assert_eq!(session.run(&values).unwrap(), saved, "{from:?} into {into:?}");
            session.run(&train).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_cut_or_looked_up_is_a_mistake() {
    let check = |build: &dyn Fn(&Graph), why: &str| {
        let g = Graph::new();
        build(&g);
        let error = g.check().unwrap_err();
        assert!(error.message.contains(why) && error.message.contains("partitions.rs"), "{error}");
    };
    let zeros = |shape: &[usize]| initializers::zeros(Shape::from(shape));
    let two = fixed_size_partitioner(2);
    check(
        &|g| drop(g.partitioned_variable("w", 1.0f32, &two)),
        "Cannot partition variable along axis 0 when shape is only []",
    );
    check(
        &|g| {
            g.partitioned_variable("w", zeros(&[4]), &two);
            g.partitioned_variable("w", zeros(&[4]), &two);
        },
        "Variable w already exists",
    );
    check(
        &|g| {
            let w = g.partitioned_variable("w", zeros(&[4, 4]), &two.clone().axis(1));
            w.embedding_lookup(&g.constant([1i32]));
        },
        "w is cut along axis 1",
    );
    check(
        &|g| {
            let parts = [g.variable("a", zeros(&[1, 2])), g.variable("b", zeros(&[3, 2]))];
            embedding_lookup(&parts, &g.constant([1i32]), PartitionStrategy::Div);
        },
        "part 0 of a table of 4 rows in 2 parts must have 2 rows",
    );
    check(&|g| drop(embedding_lookup(&[], &g.constant([1i32]), PartitionStrategy::Mod)), "at least one part");
}
